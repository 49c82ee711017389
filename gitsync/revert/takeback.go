package revert

import (
	"fmt"
	"maps"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// File is a file as it is to be.
type File struct {
	Content    []byte
	Executable bool
	// Gone: it is not to be there.
	Gone bool
}

// TakeBack takes back what other commits brought, newest first, and returns the files
// of a commit that this changes, by their path. It does so as far as the GitSource
// renders them, and three-way by lines, so that later changes stay. The controller
// does the same in a rollback. It helps where git revert has a conflict, in a file
// beside the manifests or in lines that are neighbours. Conflicts are the files that
// stay as they are, since later commits changed the same lines. A rendering has to
// show whether the rest does what it should. The store is only read.
func TakeBack(
	store storer.EncodedObjectStorer, gs *v1alpha1.GitSource, head plumbing.Hash, commits []plumbing.Hash,
) (changes map[string]File, conflicts []string, err error) {
	s := gitobject.NewStore(store)
	r := &desired.Reader{Source: gs}
	from, err := gitobject.TreeHash(store, head)
	if err != nil {
		return nil, nil, err
	}
	tree := from
	for _, h := range commits {
		c := &Commit{Hash: h}
		if c.Parent, err = firstParent(store, h); err != nil {
			return nil, nil, err
		}
		if err := c.Read(store, r); err != nil {
			return nil, nil, err
		}
		next, more, err := c.Undo(s, tree, nil)
		if err != nil {
			return nil, nil, err
		}
		tree, conflicts = next, append(conflicts, more...)
	}
	changes, more, err := filesBetween(s, from, tree)
	conflicts = append(conflicts, more...)
	slices.Sort(conflicts)
	return changes, slices.Compact(conflicts), err
}

func firstParent(s storer.EncodedObjectStorer, commit plumbing.Hash) (plumbing.Hash, error) {
	c, err := object.GetCommit(s, commit)
	if err != nil {
		return plumbing.ZeroHash, gittree.Missing("commit", commit, err)
	}
	if len(c.ParentHashes) == 0 {
		return plumbing.ZeroHash, fmt.Errorf("commit %s is the first one; there is nothing before it", plan.ShortCommit(commit.String()))
	}
	return c.ParentHashes[0], nil
}

// filesBetween are the files that differ between two trees, as the second one
// has them. A link or submodule is a conflict.
func filesBetween(s *gitobject.Store, from, to plumbing.Hash) (map[string]File, []string, error) {
	differ, err := gitobject.Diff(s, from, to)
	if err != nil {
		return nil, nil, err
	}
	found := map[string]File{}
	var conflicts []string
	for _, p := range slices.Sorted(maps.Keys(differ)) {
		switch e := differ[p].To; e.Mode {
		case filemode.Empty:
			found[p] = File{Gone: true}
		case filemode.Regular, filemode.Executable:
			content, err := gitobject.ReadBlob(s, e.Hash)
			if err != nil {
				return nil, nil, err
			}
			found[p] = File{Content: content, Executable: e.Mode == filemode.Executable}
		default:
			conflicts = append(conflicts, p)
		}
	}
	return found, conflicts, nil
}
