package writeback

import (
	"errors"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// noPlace is the error of a renderer that has no place now.
type noPlace struct{ error }

func (noPlace) Free() <-chan struct{} { return nil }
func (noPlace) Leave()                {}

// A source whose rendering did not come to its end keeps a revert back only if the revert
// changes files that its kustomizations can take.
func TestUnfinishedRendering(t *testing.T) {
	repo := gittest.NewRepo(t)
	treeOf := func(files map[string]string) plumbing.Hash {
		return plumbing.NewHash(repo.Git("rev-parse", repo.Commit(files)+"^{tree}"))
	}
	before := treeOf(map[string]string{
		"base/web.yaml": "v2\n", "base/kustomization.yaml": "resources: [web.yaml]\n",
		"k/kustomization.yaml": "resources: [../base]\n", "x/kustomization.yaml": "resources: [a.yaml]\n",
	})
	after := treeOf(map[string]string{"base/web.yaml": "v1\n"})
	scratch := gitobject.NewStore(gittest.Objects(repo.Work + "/.git"))
	for _, c := range []struct {
		because string
		path    string
		read    []string
		err     error
		want    bool
	}{
		{"its kustomizations take the base", "k", []string{"/k/kustomization.yaml", "/base/kustomization.yaml"}, desired.Unfetched{Err: errors.New("no answer")}, true},
		{"its kustomizations take other folders", "x", []string{"/x/kustomization.yaml"}, desired.Unfetched{Err: errors.New("no answer")}, false},
		{"its path is the base", "base", nil, desired.Unfetched{Err: errors.New("no answer")}, true},
		{"its path is the root", ".", nil, desired.Unfetched{Err: errors.New("no answer")}, true},
		{"nothing was read, since there was no place", "x", nil, noPlace{errors.New("no place")}, true},
	} {
		tree, err := gittree.OpenTree(scratch, before)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range c.read {
			if _, err := tree.ReadFile(p); err != nil {
				t.Fatal(err)
			}
		}
		s := &sharer{GitSource: &v1alpha1.GitSource{Spec: v1alpha1.GitSourceSpec{Path: c.path}}, tree: before, before: &sharedRendering{reads: tree.Reads(), err: c.err}}
		if s.before.isKnown() {
			t.Errorf("%s: the rendering counts as known", c.because)
		}
		if got, err := s.mayRead(scratch, after); err != nil || got != c.want {
			t.Errorf("%s: %t %v, want %t", c.because, got, err, c.want)
		}
	}
}
