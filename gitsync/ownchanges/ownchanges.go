package ownchanges

import (
	"context"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittree"
)

// Finder finds what commits have changed.
type Finder struct {
	Store storer.EncodedObjectStorer
	// Bases returns the best common ancestors of two commits.
	Bases func(ctx context.Context, a, b plumbing.Hash) ([]plumbing.Hash, error)
	// Spend counts an effort, about in microseconds. It returns an error where that was too much.
	Spend func(ctx context.Context, effort int) error
	// known are the changes of commits; kept is how many files they have.
	known map[plumbing.Hash]*Changes
	kept  int
}

// EffortOfFile is that of finding that a file has changed.
const EffortOfFile = 5

// Changes are what a commit has changed.
type Changes struct {
	Files map[string]gitobject.Change // to its first parent
	// Contested files of a merge of two commits with one merge base; nil: it is none.
	Contested map[string]*Contested
	Unclean   bool // of a merge: unless its contested files are clean
}

// The changes of commits are kept between the merges of a search, up to so many files of
// one commit and of all.
const (
	keptFilesOfCommit = 1_000
	keptFiles         = 200_000
)

// Of returns what a commit has changed.
func (f *Finder) Of(ctx context.Context, c *object.Commit) (*Changes, error) {
	if p, ok := f.known[c.Hash]; ok {
		return p, nil
	}
	p := &Changes{Unclean: len(c.ParentHashes) > 1}
	parents := make([]*object.Commit, len(c.ParentHashes))
	var err error
	for i, hash := range c.ParentHashes {
		if parents[i], err = object.GetCommit(f.Store, hash); err != nil {
			return nil, gittree.Missing("commit", hash, err)
		}
	}
	if len(parents) == 2 {
		bases, err := f.Bases(ctx, parents[0].Hash, parents[1].Hash)
		if err != nil {
			return nil, err
		}
		if len(bases) == 1 {
			if p.Contested, err = f.Contested(ctx, bases[0], parents[0], parents[1], c); err != nil {
				return nil, err
			}
		}
	}
	var before plumbing.Hash
	if len(parents) > 0 {
		before = parents[0].TreeHash
	}
	if p.Files, err = gitobject.Diff(f.Store, before, c.TreeHash); err != nil {
		return nil, err
	}
	if n := len(p.Files) + len(p.Contested); n <= keptFilesOfCommit && f.kept+n <= keptFiles {
		if f.known == nil {
			f.known = map[plumbing.Hash]*Changes{}
		}
		f.kept += n
		f.known[c.Hash] = p
	}
	return p, f.Spend(ctx, EffortOfFile*(1+len(p.Files)))
}

// Own returns what a commit has made of files. For a merge, these are the files that git would
// have merged in another way. The store takes what git would have made of them.
func (f *Finder) Own(ctx context.Context, to *gitobject.Store, c *object.Commit) (map[string]gitobject.Change, error) {
	all, err := f.Of(ctx, c)
	if err != nil {
		return nil, err
	}
	if len(c.ParentHashes) < 2 {
		return all.Files, nil
	}
	own := map[string]gitobject.Change{}
	if all.Contested == nil {
		for file, change := range all.Files {
			of, err := isOfParent(f.Store, c, file, change.To)
			if err != nil {
				return nil, err
			}
			if !of {
				own[file] = change
			}
		}
		return own, nil
	}
	for file, x := range all.Contested {
		clean, err := f.isCleanFile(ctx, x)
		if err != nil {
			return nil, err
		}
		if clean {
			continue
		}
		from, err := x.mergedByGit(f.Store, to)
		if err != nil {
			return nil, err
		}
		own[file] = gitobject.Change{From: from, To: x.merged}
	}
	return own, nil
}

// isOfParent reports whether a parent of a merge has a file as the merge has it.
func isOfParent(s storer.EncodedObjectStorer, c *object.Commit, file string, to object.TreeEntry) (bool, error) {
	for _, p := range c.ParentHashes {
		tree, err := gitobject.TreeHash(s, p)
		if err != nil {
			return false, err
		}
		e, err := gitobject.EntryAt(s, tree, file)
		if err != nil || gitobject.SameEntry(e, to) {
			return err == nil, err
		}
	}
	return false, nil
}
