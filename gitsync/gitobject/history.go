package gitobject

import (
	"context"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/tranche-dev/tranche/gitsync/gittree"
)

// TreeHash returns the tree of a commit.
func TreeHash(s storer.EncodedObjectStorer, commit plumbing.Hash) (plumbing.Hash, error) {
	c, err := object.GetCommit(s, commit)
	if err != nil {
		return plumbing.ZeroHash, gittree.Missing("commit", commit, err)
	}
	return c.TreeHash, nil
}

// ParentWith returns the first parent that has the file with that content.
func ParentWith(s storer.EncodedObjectStorer, c *object.Commit, file string, content plumbing.Hash) (*object.Commit, error) {
	for _, parent := range c.ParentHashes {
		h, ok, err := BlobAt(s, parent, file)
		if err != nil {
			return nil, err
		}
		if !ok || h != content {
			continue
		}
		p, err := object.GetCommit(s, parent)
		if err != nil {
			return nil, gittree.Missing("commit", parent, err)
		}
		return p, nil
	}
	return nil, nil
}

// BlobAt returns the content of a file in a commit, and false if the commit has no such file.
func BlobAt(s storer.EncodedObjectStorer, commit plumbing.Hash, file string) (plumbing.Hash, bool, error) {
	t, err := gittree.Open(s, commit)
	if err != nil {
		return plumbing.ZeroHash, false, err
	}
	return t.Blob(file)
}

// Unseen adds the parents of a commit that were not seen to a list.
func Unseen(s storer.EncodedObjectStorer, c *object.Commit, seen map[plumbing.Hash]bool, list []*object.Commit) ([]*object.Commit, error) {
	for _, p := range c.ParentHashes {
		if seen[p] {
			continue
		}
		seen[p] = true
		parent, err := object.GetCommit(s, p)
		if err != nil {
			return nil, gittree.Missing("commit", p, err)
		}
		list = append(list, parent)
	}
	return list, nil
}

// Ancestors returns a commit and all that it has in its history.
func Ancestors(ctx context.Context, s storer.EncodedObjectStorer, of plumbing.Hash) (map[plumbing.Hash]bool, error) {
	seen := map[plumbing.Hash]bool{of: true}
	first, err := object.GetCommit(s, of)
	if err != nil {
		return nil, gittree.Missing("commit", of, err)
	}
	for next := []*object.Commit{first}; len(next) > 0; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c := next[len(next)-1]
		if next, err = Unseen(s, c, seen, next[:len(next)-1]); err != nil {
			return nil, err
		}
	}
	return seen, nil
}
