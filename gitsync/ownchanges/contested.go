package ownchanges

import (
	"context"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittree"
)

// Contested is a file that a merge may have in another way than git would have merged it.
type Contested struct {
	base, a, b, merged object.TreeEntry
	// clean is whether it has it in the same way; nil: not compared yet.
	clean *bool
}

// Contested returns the files of a merge of two commits that are not those of the one
// side which has changed them.
func (f *Finder) Contested(ctx context.Context, base plumbing.Hash, a, b, merge *object.Commit) (map[string]*Contested, error) {
	from, err := object.GetCommit(f.Store, base)
	if err != nil {
		return nil, gittree.Missing("commit", base, err)
	}
	var sides [3]map[string]gitobject.Change
	for i, c := range []*object.Commit{a, b, merge} {
		if sides[i], err = gitobject.Diff(f.Store, from.TreeHash, c.TreeHash); err != nil {
			return nil, err
		}
		if err := f.Spend(ctx, EffortOfFile*(1+len(sides[i]))); err != nil {
			return nil, err
		}
	}
	found := map[string]*Contested{}
	for _, side := range sides {
		for file, c := range side {
			x := &Contested{base: c.From, a: at3(sides[0], file, c), b: at3(sides[1], file, c), merged: at3(sides[2], file, c)}
			same := gitobject.SameEntry
			if ofA := same(x.a, x.b) || same(x.b, x.base); ofA && same(x.merged, x.a) || same(x.a, x.base) && same(x.merged, x.b) {
				continue
			}
			found[file] = x
		}
	}
	return found, nil
}

// at3 returns a file as one side of a merge has it, given a change of it by any side.
func at3(side map[string]gitobject.Change, file string, change gitobject.Change) object.TreeEntry {
	if c, ok := side[file]; ok {
		return c.To
	}
	return change.From
}

// IsClean reports whether a merge of two commits has in all files that matter what git makes
// of them by itself. Forges make such merges, and sign them, if at all, with a key of their own.
func (f *Finder) IsClean(ctx context.Context, files map[string]*Contested, matters func(file string) bool) (bool, error) {
	for file, x := range files {
		if !matters(file) {
			continue
		}
		if x.clean == nil {
			clean, err := f.isCleanFile(ctx, x)
			if err != nil {
				return false, err
			}
			x.clean = &clean
		}
		if !*x.clean {
			return false, nil
		}
	}
	return true, nil
}

// isCleanFile reports whether a merged file is what a merge of both sides makes.
func (f *Finder) isCleanFile(ctx context.Context, x *Contested) (bool, error) {
	if gitobject.SameEntry(x.a, x.b) || gitobject.SameEntry(x.b, x.base) || gitobject.SameEntry(x.a, x.base) {
		return false, nil // else it would not be contested
	}
	var text [4][]byte
	for i, e := range []object.TreeEntry{x.base, x.a, x.b, x.merged} {
		if !e.Mode.IsFile() || e.Mode != x.merged.Mode {
			return false, nil
		}
		var err error
		if text[i], err = gitobject.ReadBlob(f.Store, e.Hash); err != nil {
			return false, err
		}
		if err := f.Spend(ctx, len(text[i])/8); err != nil {
			return false, err
		}
	}
	want, ok := gitobject.Merge3(text[0], text[1], text[2])
	return ok && string(want) == string(text[3]), nil
}

// mergedByGit returns a file as a merge of both sides makes it. If both sides are in
// conflict, it is the file of the first side.
func (x *Contested) mergedByGit(s storer.EncodedObjectStorer, to *gitobject.Store) (object.TreeEntry, error) {
	switch {
	case gitobject.SameEntry(x.a, x.base):
		return x.b, nil
	case gitobject.SameEntry(x.b, x.base):
		return x.a, nil
	}
	var text [3][]byte
	for i, e := range []object.TreeEntry{x.base, x.a, x.b} {
		if !e.Mode.IsFile() || e.Mode == filemode.Symlink {
			return x.a, nil
		}
		var err error
		if text[i], err = gitobject.ReadBlob(s, e.Hash); err != nil {
			return x.a, err
		}
	}
	merged, ok := gitobject.Merge3(text[0], text[1], text[2])
	if !ok {
		return x.a, nil
	}
	h, err := to.WriteBlob(merged)
	return object.TreeEntry{Mode: x.a.Mode, Hash: h}, err
}
