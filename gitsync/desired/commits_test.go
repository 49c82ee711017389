package desired

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/storage/filesystem"
	gitmemory "github.com/go-git/go-git/v5/storage/memory"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

func webAt(image string) map[string]string {
	return map[string]string{"deploy/web.yaml": `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "registry.example.org/web:` + image + `"}]}
---
apiVersion: tranche.dev/v1alpha1
kind: BatchRelease
metadata: {name: web}
spec:
  workloadRef: {name: web}
  strategy: {steps: [{replicas: 1}, {replicas: 100%}]}
`}
}

func testMapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Version: "v1"}, {Group: "apps", Version: "v1"}})
	m.Add(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, meta.RESTScopeNamespace)
	m.Add(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, meta.RESTScopeNamespace)
	return m
}

func rendererAt(t *testing.T, repo *gittest.Repo, synced string) *Reader {
	t.Helper()
	s := snapshotOf(t, repository.NewCache(t.TempDir()), repo.URL())
	gs := &v1alpha1.GitSource{ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: "shop"}, Spec: v1alpha1.GitSourceSpec{URL: repo.URL(), Path: "deploy"}}
	gs.Status.AppliedCommit = synced
	return &Reader{Snapshot: s, Source: gs, Mapper: testMapper(), Brought: map[string]FileOrigin{}, Changes: Changes{}}
}

func liveAt(image, commit string) *v1alpha1.BatchRelease {
	br := &v1alpha1.BatchRelease{}
	br.Spec.Commit = commit
	br.Spec.Template = &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example.org/web:" + image}}},
	}
	return br
}

func TestReleaseCommit(t *testing.T) {
	for name, tt := range map[string]struct {
		reason string
		// story makes commits, and returns the synced one, the release in the
		// cluster, and the commit that is wanted.
		story func(r *gittest.Repo) (synced string, live *v1alpha1.BatchRelease, want string)
	}{
		"first sync": {"nothing is in the cluster, so the tip is as good as any", func(r *gittest.Repo) (string, *v1alpha1.BatchRelease, string) {
			r.Commit(webAt("v1"))
			return "", nil, r.Commit(map[string]string{"README.md": "x"})
		}},
		"docs and an approval on top": {"neither renders anything else", func(r *gittest.Repo) (string, *v1alpha1.BatchRelease, string) {
			v1 := r.Commit(webAt("v1"))
			v2 := r.Commit(webAt("v2"))
			r.Commit(map[string]string{"README.md": "x"})
			r.Commit(map[string]string{"deploy/approvals/web.yaml": "apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\n"})
			r.Commit(map[string]string{"deploy/other.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n"})
			return v1, liveAt("v1", v1), v2
		}},
		"the release is in the cluster": {"a docs commit is no other release", func(r *gittest.Repo) (string, *v1alpha1.BatchRelease, string) {
			v1 := r.Commit(webAt("v1"))
			r.Commit(map[string]string{"README.md": "x"})
			return v1, liveAt("v1", v1), v1
		}},
		"there and back and there again at once": {"the run that lasts to the tip counts", func(r *gittest.Repo) (string, *v1alpha1.BatchRelease, string) {
			v1 := r.Commit(webAt("v1"))
			r.Commit(webAt("v2"))
			r.Commit(webAt("v1"))
			again := r.Commit(webAt("v2"))
			r.Commit(map[string]string{"README.md": "x"})
			return v1, liveAt("v1", v1), again
		}},
		"a merge": {"what counts is the first-parent chain: main has v2 since the merge", func(r *gittest.Repo) (string, *v1alpha1.BatchRelease, string) {
			v1 := r.Commit(webAt("v1"))
			r.Git("checkout", "-q", "-b", "feature")
			r.Commit(webAt("v2"))
			r.Git("checkout", "-q", "main")
			r.Commit(map[string]string{"README.md": "x"})
			r.Git("merge", "-q", "--no-ff", "-m", "Merge feature", "feature")
			merge := r.Head()
			r.Commit(map[string]string{"README.md": "y"})
			return v1, liveAt("v1", v1), merge
		}},
		"a parent that does not render": {"the release begins where it can first be had", func(r *gittest.Repo) (string, *v1alpha1.BatchRelease, string) {
			v1 := r.Commit(webAt("v1"))
			r.Commit(map[string]string{"deploy/web.yaml": webAt("v2")["deploy/web.yaml"], "deploy/bad.yaml": "a: ["})
			return v1, liveAt("v1", v1), r.Commit(map[string]string{"deploy/bad.yaml": ""})
		}},
		"the template was synced before": {"a release after the last synced commit never has an older one", func(r *gittest.Repo) (string, *v1alpha1.BatchRelease, string) {
			r.Commit(webAt("v2"))
			synced := r.Commit(map[string]string{"README.md": "x"})
			return synced, liveAt("v1", "0000000"), r.Commit(map[string]string{"README.md": "y"})
		}},
		"a bad commit in between": {"it was never applied, and says nothing of the release", func(r *gittest.Repo) (string, *v1alpha1.BatchRelease, string) {
			r.Commit(webAt("v1"))
			v2 := r.Commit(webAt("v2"))
			r.Commit(map[string]string{"deploy/bad.yaml": "a: ["})
			r.Commit(map[string]string{"deploy/bad.yaml": ""})
			return v2, liveAt("v2", v2), v2
		}},
		"reverted and brought again between two looks": {"whether the controller looked in between makes no difference", func(r *gittest.Repo) (string, *v1alpha1.BatchRelease, string) {
			r.Commit(webAt("v1"))
			v2 := r.Commit(webAt("v2"))
			docs := r.Commit(map[string]string{"README.md": "x"})
			r.Revert(v2)
			again := r.Commit(webAt("v2"))
			r.Commit(map[string]string{"README.md": "y"})
			return docs, liveAt("v2", v2), again
		}},
		"the same, the new commit written and not yet the status": {"the name does not change again", func(r *gittest.Repo) (string, *v1alpha1.BatchRelease, string) {
			r.Commit(webAt("v1"))
			v2 := r.Commit(webAt("v2"))
			r.Revert(v2)
			again := r.Commit(webAt("v2"))
			r.Commit(map[string]string{"README.md": "y"})
			return v2, liveAt("v2", again), again
		}},
		"merged the wrong way round": {"git pull makes main the second parent; the release was there all the time", func(r *gittest.Repo) (string, *v1alpha1.BatchRelease, string) {
			r.Commit(webAt("v1"))
			r.Git("checkout", "-q", "-b", "feature")
			r.Commit(map[string]string{"README.md": "x"})
			r.Git("checkout", "-q", "main")
			v2 := r.Commit(webAt("v2"))
			r.Git("checkout", "-q", "feature")
			r.Git("merge", "-q", "--no-ff", "-m", "Merge main", "main")
			r.Git("checkout", "-q", "-B", "main")
			return v2, liveAt("v2", v2), v2
		}},
		"rebased": {"the commit is gone, the release is not", func(r *gittest.Repo) (string, *v1alpha1.BatchRelease, string) {
			v1 := r.Commit(webAt("v1"))
			v2 := r.Commit(webAt("v2"))
			r.Git("reset", "-q", "--hard", v1)
			r.Commit(map[string]string{"README.md": "before"})
			r.Commit(webAt("v2"))
			return v2, liveAt("v2", v2), v2
		}},
		"squashed into one": {"all the past is gone, the release is not", func(r *gittest.Repo) (string, *v1alpha1.BatchRelease, string) {
			r.Commit(webAt("v1"))
			v2 := r.Commit(webAt("v2"))
			r.Git("checkout", "-q", "--orphan", "new")
			r.Commit(nil)
			r.Git("branch", "-q", "-M", "new", "main")
			return v2, liveAt("v2", v2), v2
		}},
		"rewritten to something new": {"that is a release like any other", func(r *gittest.Repo) (string, *v1alpha1.BatchRelease, string) {
			v1 := r.Commit(webAt("v1"))
			v2 := r.Commit(webAt("v2"))
			r.Git("reset", "-q", "--hard", v1)
			v3 := r.Commit(webAt("v3"))
			r.Commit(map[string]string{"README.md": "x"})
			return v2, liveAt("v2", v2), v3
		}},
		"the whole history": {"the root commit has no parent", func(r *gittest.Repo) (string, *v1alpha1.BatchRelease, string) {
			root := r.Commit(webAt("v2"))
			r.Commit(map[string]string{"README.md": "y"})
			return "", liveAt("v1", "0000000"), root
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repo := gittest.NewRepo(t)
			synced, live, want := tt.story(repo)
			repo.Push()
			r := rendererAt(t, repo, synced)
			d, _, err := r.Read(nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := NewHistory(r, d).ReleaseCommit(context.Background(), &d.Set.Releases[0], live)
			if err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("%s\ngot %s, want %s\n%s", tt.reason, got, want, repo.Git("log", "--graph", "--format=%H %s"))
			}
		})
	}
}

func TestBringer(t *testing.T) {
	file := "approvals/web.yaml"
	for name, tt := range map[string]struct {
		reason string
		story  func(r *gittest.Repo) (want, by string)
	}{
		"plainly": {"the commit that wrote it", func(r *gittest.Repo) (string, string) {
			r.Author = "Grace Example <grace@example.org>"
			want := r.Commit(map[string]string{file: "one"})
			r.Author = gittest.Author
			r.Commit(map[string]string{"README.md": "x"})
			return want, "Grace Example <grace@example.org>"
		}},
		"changed since": {"the commit that wrote what stands there now", func(r *gittest.Repo) (string, string) {
			r.Commit(map[string]string{file: "one"})
			return r.Commit(map[string]string{file: "two"}), gittest.Author
		}},
		"merged": {"who wrote it on the branch, and not the forge that merged", func(r *gittest.Repo) (string, string) {
			r.Commit(map[string]string{"README.md": "x"})
			r.Git("checkout", "-q", "-b", "approve")
			r.Author = "Grace Example <grace@example.org>"
			want := r.Commit(map[string]string{file: "one"})
			r.Git("checkout", "-q", "main")
			r.Author = gittest.Author
			r.Commit(map[string]string{"README.md": "y"})
			r.Git("merge", "-q", "--no-ff", "-m", "Merge", "approve")
			return want, "Grace Example <grace@example.org>"
		}},
		"taken away and put back": {"the commit that put it back", func(r *gittest.Repo) (string, string) {
			r.Commit(map[string]string{file: "one"})
			r.Commit(map[string]string{file: ""})
			return r.Commit(map[string]string{file: "one"}), gittest.Author
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repo := gittest.NewRepo(t)
			want, by := tt.story(repo)
			before := plumbing.NewHash(repo.Head())
			repo.Commit(map[string]string{"README.md": "last"})
			repo.Push()
			s := snapshotOf(t, repository.NewCache(t.TempDir()), repo.URL())
			got, err := LastChange(s, s.Commit, file, FileOrigin{})
			if err != nil {
				t.Fatal(err)
			}
			if got.In != want || got.By != by {
				t.Errorf("%s: got %s by %s, want %s by %s", tt.reason, got.In, got.By, want, by)
			}
			last, err := LastChange(s, before, file, FileOrigin{})
			if err != nil {
				t.Fatal(err)
			}
			if again, err := LastChange(s, s.Commit, file, last); err != nil || again.In != want || again.tip != s.Commit {
				t.Errorf("from an earlier answer: %+v %v", again, err)
			}
		})
	}
}

// A commit that changes nothing which was read renders nothing.
func TestDesiredIsKept(t *testing.T) {
	repo := gittest.NewRepo(t)
	repo.CommitAndPush(webAt("v1"))
	r := rendererAt(t, repo, "")
	first, rendered, err := r.Read(nil)
	if err != nil || !rendered {
		t.Fatal(rendered, err)
	}
	for i, tt := range []struct {
		files map[string]string
		want  bool
	}{
		{map[string]string{"README.md": "x"}, false},
		{map[string]string{"deploy/approvals/web.yaml": "x: 1"}, true}, // a new name in the folder that is listed
		{map[string]string{"deploy/approvals/web.yaml": "x: 2"}, false},
		{webAt("v2"), true},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			tip := repo.CommitAndPush(tt.files)
			next, rendered, err := rendererAt(t, repo, "").Read(first)
			if err != nil || rendered != tt.want || next.Commit != tip {
				t.Errorf("rendered %t, want %t; %v", rendered, tt.want, err)
			}
			first = next
		})
	}
}

// gitobject.IsInHistory says of each two commits of a random graph what git says.
func TestIsInHistory(t *testing.T) {
	const commits = 40
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	repo := gittest.NewRepo(t)
	root := repo.Commit(map[string]string{"a": "x"})
	list := []string{root}
	for i := range commits {
		args := []string{"commit-tree", "-m", fmt.Sprint(i), root + "^{tree}"}
		parents := random.Perm(len(list))
		for _, p := range parents[:min(random.IntN(4), len(parents))] { // none: another root
			args = append(args, "-p", list[p])
		}
		list = append(list, repo.Git(args...))
	}
	store := filesystem.NewStorage(osfs.New(filepath.Join(repo.Work, ".git")), cache.NewObjectLRUDefault())
	for _, tip := range list {
		within := strings.Fields(repo.Git("rev-list", tip))
		for _, c := range list {
			got, err := gitobject.IsInHistory(t.Context(), store, plumbing.NewHash(c), plumbing.NewHash(tip))
			if err != nil {
				t.Fatal(err)
			}
			if want := slices.Contains(within, c); got != want {
				t.Errorf("%s in the history of %s: %t, want %t", c, tip, got, want)
			}
		}
	}
}

// A commit whose signature is written in another way has another name, and the same
// content. It is in the history in which the first one is. Any user who may push can
// make it.
func TestIsInHistory_Twins(t *testing.T) {
	store := gitmemory.NewStorage()
	commit := func(parent plumbing.Hash, message, signature string) plumbing.Hash {
		t.Helper()
		o := store.NewEncodedObject()
		o.SetType(plumbing.CommitObject)
		w, err := o.Writer()
		if err != nil {
			t.Fatal(err)
		}
		text := "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n"
		if !parent.IsZero() {
			text += "parent " + parent.String() + "\n"
		}
		text += "author Ada <ada@example.org> 1700000000 +0000\ncommitter Ada <ada@example.org> 1700000000 +0000\n"
		if signature != "" {
			text += "gpgsig -----BEGIN SSH SIGNATURE-----\n" + signature + " -----END SSH SIGNATURE-----\n"
		}
		if _, err := io.WriteString(w, text+"\n"+message+"\n"); err != nil {
			t.Fatal(err)
		}
		h, err := store.SetEncodedObject(o)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	root := commit(plumbing.ZeroHash, "root", "")
	one, twin := commit(root, "approve", " U1NIU0lHAAAAAQ==\n"), commit(root, "approve", " U1NIU0lH\n AAAAAQ==\n")
	other := commit(root, "approve another", " U1NIU0lHAAAAAQ==\n")
	tip := commit(commit(one, "next", ""), "tip", "")
	for _, tc := range []struct {
		why  string
		is   plumbing.Hash
		want bool
	}{{"itself", one, true}, {"its twin", twin, true}, {"another one", other, false}, {"the twin's child", commit(twin, "next", ""), false}} {
		if got, err := gitobject.IsInHistory(t.Context(), store, tc.is, tip); got != tc.want || err != nil {
			t.Errorf("%s: %t, %v, want %t", tc.why, got, err, tc.want)
		}
	}
	// A commit that was seen without a signature, or with another one, was not seen with
	// this one, whatever was asked of it before.
	now := time.Now()
	unsigned := commit(root, "no signature", "")
	added := commit(root, "no signature", " U1NIU0lHAAAAAQ==\n")
	seenTip := commit(commit(unsigned, "next", ""), "another tip", "")
	sigs := Policy{Order: gitobject.Precedence{}, Seen: []v1alpha1.SeenCommit{{Commit: seenTip.String(), Time: metav1.NewTime(now.Add(-time.Hour))}, {Commit: tip.String(), Time: metav1.NewTime(now.Add(-2 * time.Hour))}}}
	for _, tc := range []struct {
		why  string
		is   plumbing.Hash
		want bool
	}{{"itself", one, true}, {"its twin", twin, false}, {"without a signature", unsigned, true}, {"with one that was added", added, false}} {
		for range 2 {
			if used, err := sigs.Order.Precedes(t.Context(), store, tc.is, tip); used != (tc.is == one || tc.is == twin) || err != nil {
				t.Errorf("%s: used %t, %v", tc.why, used, err)
			}
			if got, err := sigs.sawBy(t.Context(), store, tc.is, now); got != tc.want || err != nil {
				t.Errorf("%s: seen %t, %v, want %t", tc.why, got, err, tc.want)
			}
		}
	}
}
