package gitsync

import (
	"context"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// A merge that git makes by itself has no change of its own, and yet it can render what
// neither side renders, of commits that render what their parents do. These commits are
// found by taking them back: all commits since the last release that do not count yet
// are taken back in the tree of the merge. Where that renders the same, the commits that
// count make what the merge renders. Where it renders something else, or cannot be had,
// the merge counts, and so does each of these commits that changed a file which is read
// for the rendering.

// combination is a merge that renders something else than what its sides have made of
// what they began with.
type combination struct {
	*rendering
	parents []*rendering
}

// contribution is a commit that may have a part in a combination.
type contribution struct {
	commit plumbing.Hash
	// changes of files that matter for the rendering.
	changes map[string]fileChange
	// other content than git would have made of its parents, or of a merge of more than two.
	unclean bool
}

// withCombined adds to the commits that count those that merges have combined.
func (o *origins) withCombined(ctx context.Context, list []plumbing.Hash, merges []combination) ([]plumbing.Hash, error) {
	counted := map[plumbing.Hash]bool{}
	for _, c := range list {
		counted[c] = true
	}
	for _, m := range slices.Backward(merges) { // the merges below a merge come first
		more, err := o.combined(ctx, m, counted)
		if err != nil {
			return nil, err
		}
		for _, c := range more {
			if !counted[c] {
				counted[c] = true
				list = append(list, c)
			}
		}
		if len(list) > maxChange {
			return nil, errTooManyCommits
		}
	}
	return list, nil
}

// combined returns the commits that have a part in what a merge renders and do not
// count yet, with the merge; none where those that count make it.
func (o *origins) combined(ctx context.Context, m combination, counted map[plumbing.Hash]bool) ([]plumbing.Hash, error) {
	commits, err := o.sinceRelease(ctx, m)
	if err != nil {
		return nil, err
	}
	var parts []contribution
	for _, c := range commits {
		if counted[c.Hash] {
			continue
		}
		p, err := o.partOf(c, m)
		if err != nil {
			return nil, err
		}
		if len(p.changes) > 0 {
			parts = append(parts, p)
		}
	}
	same, err := o.rendersSameWithout(parts, m)
	if err != nil || same {
		return nil, err
	}
	list, all := []plumbing.Hash{m.commit.Hash}, []plumbing.Hash{m.commit.Hash}
	for _, p := range parts {
		all = append(all, p.commit)
		if m.read(p.changes) {
			list = append(list, p.commit)
		}
	}
	if len(list) == 1 {
		return all, nil
	}
	return list, nil
}

// sinceRelease returns the commits below a merge, children before their parents, that came
// after the last release. Where that has left the history, it returns those that only
// one side of the merge has.
func (o *origins) sinceRelease(ctx context.Context, m combination) ([]*object.Commit, error) {
	if err := o.readPast(ctx); err != nil {
		return nil, err
	}
	seen := map[plumbing.Hash]bool{}
	if o.base.IsZero() && len(m.parents) == 2 {
		bases, err := mergeBases(m.parents[0].commit, m.parents[1].commit)
		if err != nil {
			return nil, err
		}
		for _, b := range bases {
			below, err := o.ancestors(ctx, b.Hash)
			if err != nil {
				return nil, err
			}
			for c := range below {
				seen[c] = true
			}
		}
	}
	var list []*object.Commit
	var visit func(hash plumbing.Hash) error
	visit = func(hash plumbing.Hash) error {
		if seen[hash] || o.past[hash] {
			return ctx.Err()
		}
		seen[hash] = true
		c, err := object.GetCommit(o.snapshot, hash)
		if err != nil {
			return missing("commit", hash, err)
		}
		for _, p := range c.ParentHashes {
			if err := visit(p); err != nil {
				return err
			}
		}
		if list = append(list, c); len(list) > maxWalk {
			return errTooManyCommits
		}
		return nil
	}
	for _, p := range m.parents {
		if err := visit(p.commit.Hash); err != nil {
			return nil, err
		}
	}
	slices.Reverse(list)
	return list, nil
}

// partOf returns what a commit below a merge has changed of what matters for its
// rendering. A merge has changed nothing where git makes it by itself.
func (o *origins) partOf(c *object.Commit, m combination) (contribution, error) {
	p, of := contribution{commit: c.Hash, changes: map[string]fileChange{}}, append([]*rendering{m.rendering}, m.parents...)
	parents := make([]*object.Commit, len(c.ParentHashes))
	var err error
	for i, hash := range c.ParentHashes {
		if parents[i], err = object.GetCommit(o.snapshot, hash); err != nil {
			return p, missing("commit", hash, err)
		}
	}
	if len(parents) == 2 {
		bases, err := mergeBases(parents[0], parents[1])
		if err != nil {
			return p, err
		}
		if len(bases) == 1 {
			clean, err := o.isCleanMerge(c, bases[0], parents, of...)
			if err != nil || clean {
				return p, err
			}
		}
	}
	p.unclean = len(parents) > 1
	var before plumbing.Hash
	if len(parents) > 0 {
		before = parents[0].TreeHash
	}
	all, err := changed(o.snapshot, before, c.TreeHash)
	for file, change := range all {
		if o.matters(file, of...) {
			p.changes[file] = change
		}
	}
	return p, err
}

// rendersSameWithout reports whether a merge renders the same with commits taken back
// in its tree.
func (o *origins) rendersSameWithout(parts []contribution, m combination) (bool, error) {
	s, tree := newScratch(o.snapshot), m.commit.TreeHash
	for _, p := range parts {
		next, conflicts, err := undo(s, tree, p.changes)
		if err != nil || len(conflicts) > 0 || p.unclean {
			return false, err
		}
		tree = next
	}
	if tree == m.commit.TreeHash {
		return true, nil
	}
	t, err := newTreeFSOf(s, tree)
	if err != nil {
		return false, err
	}
	r := *o.renderer
	r.mapper = nil // as for all older commits
	set, err := r.render(t)
	switch {
	case t.Err() != nil && !isExceeded(t.Err()):
		return false, t.Err()
	case isPassing(err):
		return false, err
	}
	return err == nil && o.of(set) == m.state, nil
}

// read reports whether one of the files is read for what a merge or one of its sides
// renders.
func (m combination) read(files map[string]fileChange) bool {
	for file := range files {
		for _, r := range append([]*rendering{m.rendering}, m.parents...) {
			if r.reads.read(file) {
				return true
			}
		}
	}
	return false
}
