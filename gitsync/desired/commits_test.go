package desired

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/gitsync/authors"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/signers"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

func rendererAt(t *testing.T, repo *gittest.Repo, synced string) *Reader {
	t.Helper()
	s := snapshotOf(t, repository.NewCache(t.TempDir()), repo.URL())
	gs := &v1alpha1.GitSource{ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: "shop"}, Spec: v1alpha1.GitSourceSpec{URL: repo.URL(), Path: "deploy"}}
	gs.Status.AppliedCommit = synced
	return &Reader{Snapshot: s, Source: gs, Mapper: gittest.RESTMapper(), Brought: map[string]signers.FileOrigin{}, Changes: authors.Known{}}
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
			r.Commit(gittest.Web("v1"))
			return "", nil, r.Commit(map[string]string{"README.md": "x"})
		}},
		"docs and an approval on top": {"neither renders anything else", func(r *gittest.Repo) (string, *v1alpha1.BatchRelease, string) {
			v1 := r.Commit(gittest.Web("v1"))
			v2 := r.Commit(gittest.Web("v2"))
			r.Commit(map[string]string{"README.md": "x"})
			r.Commit(map[string]string{"deploy/approvals/web.yaml": "apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\n"})
			r.Commit(map[string]string{"deploy/other.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n"})
			return v1, liveAt("v1", v1), v2
		}},
		"the release is in the cluster": {"a docs commit is no other release", func(r *gittest.Repo) (string, *v1alpha1.BatchRelease, string) {
			v1 := r.Commit(gittest.Web("v1"))
			r.Commit(map[string]string{"README.md": "x"})
			return v1, liveAt("v1", v1), v1
		}},
		"there and back and there again at once": {"the run that lasts to the tip counts", func(r *gittest.Repo) (string, *v1alpha1.BatchRelease, string) {
			v1 := r.Commit(gittest.Web("v1"))
			r.Commit(gittest.Web("v2"))
			r.Commit(gittest.Web("v1"))
			again := r.Commit(gittest.Web("v2"))
			r.Commit(map[string]string{"README.md": "x"})
			return v1, liveAt("v1", v1), again
		}},
		"a merge": {"what counts is the first-parent chain: main has v2 since the merge", func(r *gittest.Repo) (string, *v1alpha1.BatchRelease, string) {
			v1 := r.Commit(gittest.Web("v1"))
			r.Git("checkout", "-q", "-b", "feature")
			r.Commit(gittest.Web("v2"))
			r.Git("checkout", "-q", "main")
			r.Commit(map[string]string{"README.md": "x"})
			r.Git("merge", "-q", "--no-ff", "-m", "Merge feature", "feature")
			merge := r.Head()
			r.Commit(map[string]string{"README.md": "y"})
			return v1, liveAt("v1", v1), merge
		}},
		"a parent that does not render": {"the release begins where it can first be had", func(r *gittest.Repo) (string, *v1alpha1.BatchRelease, string) {
			v1 := r.Commit(gittest.Web("v1"))
			r.Commit(map[string]string{"deploy/web.yaml": gittest.Web("v2")["deploy/web.yaml"], "deploy/bad.yaml": "a: ["})
			return v1, liveAt("v1", v1), r.Commit(map[string]string{"deploy/bad.yaml": ""})
		}},
		"the template was synced before": {"a release after the last synced commit never has an older one", func(r *gittest.Repo) (string, *v1alpha1.BatchRelease, string) {
			r.Commit(gittest.Web("v2"))
			synced := r.Commit(map[string]string{"README.md": "x"})
			return synced, liveAt("v1", "0000000"), r.Commit(map[string]string{"README.md": "y"})
		}},
		"a bad commit in between": {"it was never applied, and says nothing of the release", func(r *gittest.Repo) (string, *v1alpha1.BatchRelease, string) {
			r.Commit(gittest.Web("v1"))
			v2 := r.Commit(gittest.Web("v2"))
			r.Commit(map[string]string{"deploy/bad.yaml": "a: ["})
			r.Commit(map[string]string{"deploy/bad.yaml": ""})
			return v2, liveAt("v2", v2), v2
		}},
		"reverted and brought again between two looks": {"whether the controller looked in between makes no difference", func(r *gittest.Repo) (string, *v1alpha1.BatchRelease, string) {
			r.Commit(gittest.Web("v1"))
			v2 := r.Commit(gittest.Web("v2"))
			docs := r.Commit(map[string]string{"README.md": "x"})
			r.Revert(v2)
			again := r.Commit(gittest.Web("v2"))
			r.Commit(map[string]string{"README.md": "y"})
			return docs, liveAt("v2", v2), again
		}},
		"the same, the new commit written and not yet the status": {"the name does not change again", func(r *gittest.Repo) (string, *v1alpha1.BatchRelease, string) {
			r.Commit(gittest.Web("v1"))
			v2 := r.Commit(gittest.Web("v2"))
			r.Revert(v2)
			again := r.Commit(gittest.Web("v2"))
			r.Commit(map[string]string{"README.md": "y"})
			return v2, liveAt("v2", again), again
		}},
		"merged the wrong way round": {"git pull makes main the second parent; the release was there all the time", func(r *gittest.Repo) (string, *v1alpha1.BatchRelease, string) {
			r.Commit(gittest.Web("v1"))
			r.Git("checkout", "-q", "-b", "feature")
			r.Commit(map[string]string{"README.md": "x"})
			r.Git("checkout", "-q", "main")
			v2 := r.Commit(gittest.Web("v2"))
			r.Git("checkout", "-q", "feature")
			r.Git("merge", "-q", "--no-ff", "-m", "Merge main", "main")
			r.Git("checkout", "-q", "-B", "main")
			return v2, liveAt("v2", v2), v2
		}},
		"rebased": {"the commit is gone, the release is not", func(r *gittest.Repo) (string, *v1alpha1.BatchRelease, string) {
			v1 := r.Commit(gittest.Web("v1"))
			v2 := r.Commit(gittest.Web("v2"))
			r.Git("reset", "-q", "--hard", v1)
			r.Commit(map[string]string{"README.md": "before"})
			r.Commit(gittest.Web("v2"))
			return v2, liveAt("v2", v2), v2
		}},
		"squashed into one": {"all the past is gone, the release is not", func(r *gittest.Repo) (string, *v1alpha1.BatchRelease, string) {
			r.Commit(gittest.Web("v1"))
			v2 := r.Commit(gittest.Web("v2"))
			r.Git("checkout", "-q", "--orphan", "new")
			r.Commit(nil)
			r.Git("branch", "-q", "-M", "new", "main")
			return v2, liveAt("v2", v2), v2
		}},
		"rewritten to something new": {"that is a release like any other", func(r *gittest.Repo) (string, *v1alpha1.BatchRelease, string) {
			v1 := r.Commit(gittest.Web("v1"))
			v2 := r.Commit(gittest.Web("v2"))
			r.Git("reset", "-q", "--hard", v1)
			v3 := r.Commit(gittest.Web("v3"))
			r.Commit(map[string]string{"README.md": "x"})
			return v2, liveAt("v2", v2), v3
		}},
		"the whole history": {"the root commit has no parent", func(r *gittest.Repo) (string, *v1alpha1.BatchRelease, string) {
			root := r.Commit(gittest.Web("v2"))
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

// A commit that changes nothing which was read renders nothing.
func TestDesiredIsKept(t *testing.T) {
	repo := gittest.NewRepo(t)
	repo.CommitAndPush(gittest.Web("v1"))
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
		{map[string]string{"deploy/approvals/web.yaml": "x: 1"}, false},
		{map[string]string{"deploy/README.md": "x"}, true}, // a new name in the folder that is listed
		{map[string]string{"deploy/approvals/web.yaml": "x: 2", "deploy/README.md": "y"}, false},
		{gittest.Web("v2"), true},
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
