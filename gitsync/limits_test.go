package gitsync

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-git/go-git/v5/plumbing/storer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// A repository that is too large is refused, says so once per tip, and leaves
// the others alone; what was brought stays in force.
func TestRepositoryTooLarge(t *testing.T) {
	small, large := gittest.NewRepo(t), gittest.NewRepo(t)
	small.CommitAndPush(map[string]string{"a": "1"})
	first := large.CommitAndPush(map[string]string{"a": "1"})
	var fetched atomic.Int32
	server := gittest.Serve(t, filepath.Dir(large.Bare), gittest.ServeOptions{Wrap: func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/git-upload-pack") {
				fetched.Add(1)
			}
			h.ServeHTTP(w, r)
		})
	}})
	for _, tt := range []struct{ reason, file, says string }{
		{"bytes", gittest.Noise(1 << 20), "has more than 512Ki; make it smaller, or raise the controller's --max-repository-size"},
		{"a file that is small in the pack and large in memory", strings.Repeat("0", 1<<20), "a file of 1Mi is in its history, and at most 128Ki are taken"},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			ms := newMirrors(t.TempDir())
			ms.limits = gittree.Limits{RepositorySize: 512 << 10}.WithDefaults()
			r := remoteFor(t, server.URL+"/repo.git", nil)
			large.Git("reset", "-q", "--hard", first)
			large.Push("--force")
			before := mustLook(t, ms, r, "main")
			large.CommitAndPush(map[string]string{"big": tt.file})
			fetched.Store(0)
			for range 3 {
				_, err := lookAt(t, ms, r, "main")
				if err == nil || !gittree.IsExceeded(err) || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), server.URL) {
					t.Fatalf("got %v, want %q", err, tt.says)
				}
			}
			if n := fetched.Load(); n > 2 {
				t.Errorf("a tip that is too large was fetched %d times", n)
			}
			if content(t, before, "a") != "1" {
				t.Error("what was brought before is gone")
			}
			if left := diskSize(ms.of(r).dir); left > ms.limits.RepositorySize {
				t.Errorf("%d bytes are left on disk", left)
			}
			if content(t, mustLook(t, ms, remoteFor(t, small.URL(), nil), "main"), "a") != "1" {
				t.Error("another repository suffers")
			}
			large.Git("reset", "-q", "--hard", first)
			tip := large.Commit(map[string]string{"a": "2"})
			large.Push("--force")
			if s := mustLook(t, ms, r, "main"); s.commit.String() != tip {
				t.Errorf("after the large file is gone: at %s", s.commit)
			}
		})
	}
}

// What force-pushes have left behind does not count for ever.
func TestRepositoryFullOfRubbish(t *testing.T) {
	repo := gittest.NewRepo(t)
	first := repo.CommitAndPush(map[string]string{"a": "1"})
	ms, r := newMirrors(t.TempDir()), remoteFor(t, repo.URL(), nil)
	ms.limits = gittree.Limits{RepositorySize: 1 << 20}.WithDefaults()
	for i := range 8 {
		repo.Git("reset", "-q", "--hard", first)
		tip := repo.Commit(map[string]string{"a": fmt.Sprint(i) + gittest.Noise(240<<10)})
		repo.Push("--force")
		s := mustLook(t, ms, r, "main")
		if s.commit.String() != tip {
			t.Fatalf("at %s", s.commit)
		}
		if size := diskSize(s.clone.dir); size > ms.limits.RepositorySize {
			t.Errorf("%d bytes on disk", size)
		}
	}
}

const configMapFile = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"

func TestWhatIsReadIsBounded(t *testing.T) {
	for name, tt := range map[string]struct {
		reason string
		limits gittree.Limits
		write  func(r *gittest.Worktree)
		says   string
	}{
		"files": {"each costs a parse", gittree.Limits{Files: 10}, func(r *gittest.Worktree) {
			for i := range 10 {
				r.Write(fmt.Sprintf("apps/%d.yaml", i), strings.Replace(configMapFile, "name: a", fmt.Sprintf("name: a%d", i), 1))
			}
		}, "more than 10 files and folders are read for one commit; make it smaller, or raise the controller's --max-files"},
		"bytes": {"sixteen files of the largest size, and not one more", gittree.Limits{FileSize: 100}, func(r *gittest.Worktree) {
			for i := range 17 {
				r.Write(fmt.Sprintf("apps/%02d.yaml", i), "# "+strings.Repeat("x", 98))
			}
		}, "apps/16.yaml: more than 1600 are read for one commit; make it smaller, or raise the controller's --max-file-size"},
		"a file": {"it is read into memory", gittree.Limits{FileSize: 100}, func(r *gittest.Worktree) {
			r.Write("apps/a.yaml", "# "+strings.Repeat("x", 99))
		}, "apps/a.yaml: read /apps/a.yaml: 101 bytes; files of more than 100 are not read (--max-file-size)"},
		"objects": {"the inventory has to fit into etcd", gittree.Limits{Objects: 2}, func(r *gittest.Worktree) {
			r.Write("apps/a.yaml", configMapFile+"---\n"+strings.Replace(configMapFile, "name: a", "name: b", 1)+"---\n"+strings.Replace(configMapFile, "name: a", "name: c", 1))
		}, "apps: 3 objects are rendered, and a GitSource has at most 2; make it smaller, or raise the controller's --max-objects"},
		"a kustomization that reads one file over and over": {"two overlays of two overlays of … are 2 to the 16th", gittree.Limits{Files: 3000}, func(r *gittest.Worktree) {
			r.Write("l0/a.yaml", configMapFile)
			r.Write("l0/kustomization.yaml", "resources: [a.yaml]\n")
			for i := 1; i <= 16; i++ {
				for _, side := range []string{"p", "q"} {
					r.Write(fmt.Sprintf("l%d%s/kustomization.yaml", i, side), fmt.Sprintf("namePrefix: %s\nresources: [../l%d]\n", side, i-1))
				}
				r.Write(fmt.Sprintf("l%d/kustomization.yaml", i), fmt.Sprintf("resources: [../l%dp, ../l%dq]\n", i, i))
			}
			r.Write("apps/kustomization.yaml", "resources: [../l16]\n")
		}, "more than 3000 files and folders are read for one commit"},
		"aliases": {"a billion laughs", gittree.Limits{}, func(r *gittest.Worktree) {
			r.Write("apps/a.yaml", laughs)
		}, "apps/a.yaml: read /apps/a.yaml: line 1: its YAML aliases, written out, make more than 8 MiB"},
		"aliases in a kustomization": {"kustomize reads past our own parser", gittree.Limits{}, func(r *gittest.Worktree) {
			r.Write("apps/a.txt", laughs)
			r.Write("apps/kustomization.yaml", "resources: [a.txt]\n")
		}, "its YAML aliases, written out, make more than 8 MiB"},
		"a large text that is named often": {"the names are few, and the text is eight megabytes a hundred times", gittree.Limits{}, func(r *gittest.Worktree) {
			r.Write("apps/a.yaml", "a: &a "+strings.Repeat("x", 1<<20)+"\nb: ["+strings.Repeat("*a, ", 9)+"]\n")
		}, "its YAML aliases, written out, make more than 8 MiB"},
		"some aliases": {"are what they are for", gittree.Limits{}, func(r *gittest.Worktree) {
			r.Write("apps/a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: &n a, labels: {app: *n}}\ndata: {a: *n, b: *n}\n")
		}, ""},
		"an LFS pointer as a manifest": {"what it points to would be applied, if it were here", gittree.Limits{}, func(r *gittest.Worktree) {
			r.Write("apps/a.yaml", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
		}, "apps/a.yaml: read /apps/a.yaml: is a Git LFS pointer, and LFS is not supported; keep the file in Git itself"},
		"an LFS pointer in a generator": {"its text is not what the ConfigMap is to have", gittree.Limits{}, func(r *gittest.Worktree) {
			r.Write("apps/data", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
			r.Write("apps/kustomization.yaml", "configMapGenerator: [{name: a, files: [data]}]\n")
		}, "is a Git LFS pointer"},
	} {
		t.Run(name, func(t *testing.T) {
			repo := gittest.NewWorktree(t)
			tt.write(repo)
			tree, err := gittree.Open(limitedStore{gittest.Objects(filepath.Join(repo.Dir, ".git")), tt.limits}, repo.Commit("one"))
			if err != nil {
				t.Fatal(err)
			}
			r := &renderer{gs: gitSourceAt("apps"), mapper: testMapper()}
			_, err = r.render(tree)
			if !gittest.ErrorSays(err, tt.says) {
				t.Errorf("%s: got %v, want %q", tt.reason, err, tt.says)
			}
			if err != nil {
				for _, p := range plan.ProblemsOf(err) {
					if p.Retry {
						t.Errorf("it does not pass by itself: %v", p)
					}
				}
				if len(plan.ProblemsOf(err)) == 0 || isDamage(err) {
					t.Errorf("%v is no problem that one can act on", err)
				}
			}
		})
	}
}

// limitedStore is a store of a repository that has limits.
type limitedStore struct {
	storer.EncodedObjectStorer
	limits gittree.Limits
}

func (s limitedStore) Limits() gittree.Limits { return s.limits }

// laughs are nine lines that make a billion strings.
var laughs = func() string {
	s := "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c <= 'i'; c++ {
		s += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c, ", c-1), 10), ", "))
	}
	return s
}()

func gitSourceAt(path string) *v1alpha1.GitSource {
	return &v1alpha1.GitSource{ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: "shop"}, Spec: v1alpha1.GitSourceSpec{Path: path}}
}

// A submodule in the folder is left out, and named.
func TestSubmoduleIsIgnored(t *testing.T) {
	repo := gittest.NewWorktree(t)
	repo.Write("a.yaml", configMapFile)
	repo.Submodule("module")
	tree, err := gittree.Open(gittest.Objects(filepath.Join(repo.Dir, ".git")), repo.Commit("one"))
	if err != nil {
		t.Fatal(err)
	}
	r := &renderer{gs: gitSourceAt("."), mapper: testMapper()}
	set, err := r.render(tree)
	if err != nil || len(set.Objects) != 1 {
		t.Fatalf("%+v %v", set, err)
	}
	const want = "module: is a submodule, and what is in it is not applied; move its files into this repository, or follow the other one with a GitSource of its own"
	if len(set.Ignored) != 1 || set.Ignored[0].Error() != want || set.Ignored[0].Reason != plan.ReasonSubmoduleIgnored {
		t.Errorf("ignored: %v", set.Ignored)
	}
}

// Mirrors that no source uses any more leave the disk.
func TestUnusedMirrorsGo(t *testing.T) {
	a, b := gittest.NewRepo(t), gittest.NewRepo(t)
	a.CommitAndPush(map[string]string{"a": "1"})
	b.CommitAndPush(map[string]string{"b": "1"})
	ra, rb := remoteFor(t, a.URL(), nil), remoteFor(t, b.URL(), nil)
	dir := t.TempDir()
	ms := newMirrors(dir)
	look := func(source string, r gitserver.Remote) *snapshot {
		s, err := ms.use(types.NamespacedName{Name: source}, r).look(t.Context(), r, "main")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	there := func() (names []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			switch e.Name() {
			case mirrorName(ra.URL, ""):
				names = append(names, "a")
			case mirrorName(rb.URL, ""):
				names = append(names, "b")
			default:
				names = append(names, e.Name())
			}
		}
		slices.Sort(names)
		return names
	}
	step := func(reason string, want ...string) {
		t.Helper()
		if got := there(); strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s: on disk are %v, want %v", reason, got, want)
		}
	}
	look("one", ra).close()
	look("two", ra).close()
	look("three", rb).close()
	step("three sources of two repositories", "a", "b")
	ms.leave(types.NamespacedName{Name: "one"})
	step("another source uses it", "a", "b")
	ms.leave(types.NamespacedName{Name: "two"})
	step("nobody uses it", "b")
	look("three", ra).close()
	step("a source with another URL", "a")
	if s := look("three", ra); content(t, s, "a") != "1" {
		t.Error("a repository that comes back is cloned anew")
	}
	if err := os.MkdirAll(filepath.Join(dir, "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	look("four", rb).close()
	again := newMirrors(dir)
	if removed := again.sweep(map[string]bool{mirrorName(ra.URL, ""): true}); len(removed) != 1 {
		t.Errorf("removed %v", removed)
	}
	step("after a start, without the source of b", "a", "lost+found")
}
