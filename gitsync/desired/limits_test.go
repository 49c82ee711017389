package desired

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing/storer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

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
			r := &Reader{Source: gitSourceAt("apps"), Mapper: gittest.RESTMapper()}
			_, err = r.Render(tree)
			if !gittest.ErrorSays(err, tt.says) {
				t.Errorf("%s: got %v, want %q", tt.reason, err, tt.says)
			}
			if err != nil {
				for _, p := range plan.ProblemsOf(err) {
					if p.Retry {
						t.Errorf("it does not pass by itself: %v", p)
					}
				}
				if len(plan.ProblemsOf(err)) == 0 || repository.IsDamaged(err) {
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
	r := &Reader{Source: gitSourceAt("."), Mapper: gittest.RESTMapper()}
	set, err := r.Render(tree)
	if err != nil || len(set.Objects) != 1 {
		t.Fatalf("%+v %v", set, err)
	}
	const want = "module: is a submodule, and what is in it is not applied; move its files into this repository, or follow the other one with a GitSource of its own"
	if len(set.Ignored) != 1 || set.Ignored[0].Error() != want || set.Ignored[0].Reason != plan.ReasonSubmoduleIgnored {
		t.Errorf("ignored: %v", set.Ignored)
	}
}
