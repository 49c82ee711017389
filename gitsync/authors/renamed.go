package authors

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittree"
)

// A commit that renames a file takes one away and adds another. Taken back each by itself,
// the old file would be there twice, or without what later commits made of the new one. So
// they are taken back together: the file goes back to its old path as it is now, without the
// lines that the commit changed.
//
// Another person may since have rewritten the line that names the file. Then nothing renders
// with the file at its old path alone. So a file that was used is put at both paths. It
// was if the last release read it by the new path. It also was if it was read before and
// after the commit, which rendered the same.

// move is a file that a commit renamed.
type move struct{ from, to string }

// findMoves returns the files that a commit has renamed, by their new paths. Its changes are all.
func findMoves(
	ctx context.Context, d *dormancy, c *object.Commit, all map[string]gitobject.Change, r *rendering,
) (map[string]move, error) {
	matters := func(file string) bool { return d.origins.matters(file, r) || d.reads.Includes(file) }
	if len(c.ParentHashes) != 1 || !hasAny(all, isAway, matters) || !hasAny(all, isAdded, matters) {
		return nil, nil
	}
	parent, err := gitobject.TreeHash(d.store, c.ParentHashes[0])
	if err != nil {
		return nil, err
	}
	renames, err := d.findRenames(ctx, parent, c.TreeHash)
	if err != nil {
		return nil, err
	}
	found := map[string]move{}
	for _, ch := range renames {
		m := move{ch.From.Name, ch.To.Name}
		if isAway(all[m.from]) && isAdded(all[m.to]) && matters(m.from) && matters(m.to) {
			found[m.to] = m
		}
	}
	return found, nil
}

func isAway(c gitobject.Change) bool  { return isText(c.From) && c.To.Mode == filemode.Empty }
func isAdded(c gitobject.Change) bool { return isText(c.To) && c.From.Mode == filemode.Empty }

// hasAny reports whether a change of a kind is one of a file that matters.
func hasAny(all map[string]gitobject.Change, is func(gitobject.Change) bool, matters func(string) bool) bool {
	for file, change := range all {
		if is(change) && matters(file) {
			return true
		}
	}
	return false
}

// withoutMoves returns the changes of a commit as lines of files that stay what they are, and
// keeps which ones it has renamed.
func (d *dormancy) withoutMoves(
	ctx context.Context, s *suspect, all map[string]gitobject.Change, r *rendering,
) (map[string]gitobject.Change, error) {
	moves, err := findMoves(ctx, d, s.commit, all, r)
	if err != nil || len(moves) == 0 {
		return all, err
	}
	rest := maps.Clone(all)
	for _, to := range slices.Sorted(maps.Keys(moves)) {
		m := moves[to]
		delete(rest, m.from)
		earlier, err := d.sinceEarlier(ctx, s.commit, to, all[to], s.at)
		if err != nil {
			return nil, err
		}
		if isText(earlier.From) {
			continue // it was there before, so that its lines are compared with those
		}
		rest[to] = gitobject.Change{From: all[m.from].From, To: all[to].To}
		if gitobject.SameEntry(rest[to].From, rest[to].To) {
			delete(rest, to)
		}
		s.moves = append(s.moves, m)
		d.ends[m.from], d.ends[to] = append(d.ends[m.from], to), append(d.ends[to], m.from)
	}
	return rest, nil
}

// findRenames returns the changes between two trees, with the files that were renamed.
func (d *dormancy) findRenames(ctx context.Context, from, to plumbing.Hash) (object.Changes, error) {
	if err := d.origins.spend(ctx, effortOfRenames); err != nil {
		return nil, err
	}
	var trees [2]*object.Tree
	for i, h := range []plumbing.Hash{from, to} {
		var err error
		if trees[i], err = object.GetTree(d.store, h); err != nil {
			return nil, gittree.Missing("tree", h, err)
		}
	}
	options := &object.DiffTreeOptions{DetectRenames: true, RenameScore: renameScore, RenameLimit: maxRenames}
	changes, err := object.DiffTreeWithOptions(ctx, trees[0], trees[1], options)
	if err != nil {
		return nil, fmt.Errorf("looking for renames between trees %s and %s: %w", from, to, err)
	}
	return changes, nil
}

// moveBack puts files that a commit has renamed where they were. It leaves those alone that
// are not where the commit has put them, and those at whose old path there is another file.
func (s suspect) moveBack(d *dormancy, tree plumbing.Hash) (plumbing.Hash, error) {
	put := gitobject.Files{}
	for _, m := range s.moves {
		now, err := gitobject.EntryAt(d.store, tree, m.to)
		if err != nil {
			return tree, err
		}
		old, err := gitobject.EntryAt(d.store, tree, m.from)
		if err != nil {
			return tree, err
		}
		if !isText(now) || old.Mode != filemode.Empty {
			continue
		}
		put[m.from] = now
		if !s.atBoth {
			put[m.to] = object.TreeEntry{}
		}
	}
	if len(put) == 0 {
		return tree, nil
	}
	return putInto(d.store, tree, put)
}

// putInto writes files into a tree. A tree in which a file is in the way of a folder stays.
func putInto(s *gitobject.Store, tree plumbing.Hash, files gitobject.Files) (plumbing.Hash, error) {
	next, err := s.WriteTree(tree, files)
	if errors.Is(err, gitobject.ErrNotAFolder) {
		return tree, nil
	}
	return next, err
}

// follow returns changes with the paths that the files have in a tree: a move may be taken
// back there, or not be made yet.
func (d *dormancy) follow(tree plumbing.Hash, changes map[string]gitobject.Change) (map[string]gitobject.Change, error) {
	if len(d.ends) == 0 {
		return changes, nil
	}
	followed := make(map[string]gitobject.Change, len(changes))
	for file, change := range changes {
		at, err := whereIs(d, tree, file)
		if err != nil {
			return nil, err
		}
		if _, own := changes[at]; own || !isText(change.To) {
			at = file
		}
		followed[at] = change
	}
	return followed, nil
}

// whereIs returns where a file is in a tree, given one of its paths.
func whereIs(d *dormancy, tree plumbing.Hash, file string) (string, error) {
	seen := map[string]bool{file: true}
	for queue := []string{file}; len(queue) > 0; queue = queue[1:] {
		e, err := gitobject.EntryAt(d.store, tree, queue[0])
		if err != nil || e.Mode != filemode.Empty {
			return queue[0], err
		}
		for _, end := range d.ends[queue[0]] {
			if !seen[end] {
				seen[end] = true
				queue = append(queue, end)
			}
		}
	}
	return file, nil
}

// withFilesAtBoth returns a commit as one that is taken back with its files at both paths, and
// what is rendered then. That is nil where it does not render, or where a file had no effect
// before and none on what was released last.
func (d *dormancy) withFilesAtBoth(ctx context.Context, s suspect) (suspect, fields, error) {
	s.atBoth = true
	for _, m := range s.moves {
		if used, err := m.wasUsed(d, s.commit); err != nil || !used {
			return s, nil, err
		}
	}
	without, err := d.undo(ctx, d.tree, s)
	if err != nil {
		return s, nil, err
	}
	then, err := d.fieldsOf(ctx, without)
	return s, then, err
}

// countedAtBoth returns a commit as [dormancy.withFilesAtBoth] does if something is rendered then.
// none is true if the commit has no effect on that.
func (d *dormancy) countedAtBoth(ctx context.Context, s suspect) (_ suspect, then fields, none bool, err error) {
	both, then, err := d.withFilesAtBoth(ctx, s)
	if err != nil || then == nil {
		return s, nil, false, err
	}
	none, err = d.hasNone(ctx, then, both)
	return both, then, none, err
}

// wasUsed reports whether a file was used. See the top of this file.
func (m move) wasUsed(d *dormancy, c *object.Commit) (bool, error) {
	if d.reads.Includes(m.to) {
		return true, nil
	}
	after, err := d.origins.render(c.Hash, nil)
	if err != nil {
		return false, err
	}
	before, err := d.origins.render(c.ParentHashes[0], nil)
	if err != nil {
		return false, err
	}
	return before.state == after.state && before.reads.Includes(m.from) && after.reads.Includes(m.to), nil
}
