package authors

import (
	"cmp"
	"context"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/lineage"
	"github.com/tranche-dev/tranche/plan"
)

// A merge that git makes by itself has no change of its own. Yet it can render what
// neither side renders, from commits that render what their parents do. These commits
// are found by taking them back. In the tree of the merge, origins takes back all
// commits since the last release that do not count yet. If the result renders the same,
// the commits that count make what the merge renders. If it renders something else, or
// cannot be had, the merge counts. So does each of these commits that changed a file
// which is read for the rendering.

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
	changes map[string]gitobject.Change
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

// combined returns the merge, and the commits that have a part in what it renders and
// do not count yet. It returns none if the commits that count make it.
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
		p, err := o.partOf(ctx, c, m)
		if err != nil {
			return nil, err
		}
		if len(p.changes) > 0 {
			parts = append(parts, p)
		}
	}
	same, err := o.rendersSameWithout(ctx, parts, m)
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
// after the last release. If the last release has left the history, it returns those that
// only one side of the merge has.
func (o *origins) sinceRelease(ctx context.Context, m combination) ([]*object.Commit, error) {
	l, err := o.readLineage(ctx)
	if err != nil {
		return nil, err
	}
	within := func(i int32) bool { return i >= o.past }
	if o.base.IsZero() && len(m.parents) == 2 {
		_, apart, err := o.fork(ctx, m.parents[0].commit.Hash, m.parents[1].commit.Hash)
		if err != nil {
			return nil, err
		}
		within = func(i int32) bool { return apart[i] }
	}
	tips := make([]int32, len(m.parents))
	for i, p := range m.parents {
		if tips[i], err = l.Add(ctx, p.commit.Hash); err != nil {
			return nil, err
		}
	}
	found, err := l.Below(tips, lineage.Bound{Most: MaxWalk, Err: errTooManyCommits}, within, func() error { return o.spend(ctx, 1) })
	if err != nil {
		return nil, err
	}
	list := make([]*object.Commit, len(found))
	for i, at := range found {
		hash := l.Hash(at)
		if list[i], err = object.GetCommit(o.branch.Store, hash); err != nil {
			return nil, gittree.Missing("commit", hash, err)
		}
	}
	return list, o.spend(ctx, len(list))
}

// partOf returns what a commit below a merge has changed of what matters for its
// rendering. A merge has changed nothing where git makes it by itself.
func (o *origins) partOf(ctx context.Context, c *object.Commit, m combination) (contribution, error) {
	p, of := contribution{commit: c.Hash, changes: map[string]gitobject.Change{}}, append([]*rendering{m.rendering}, m.parents...)
	all, err := o.own.Of(ctx, c)
	if err != nil {
		return p, err
	}
	reads := 0
	for _, r := range of {
		reads += len(r.reads)
	}
	// Each file may be compared with each path that was read.
	if err := o.spend(ctx, 1+(len(all.Files)+len(all.Contested))*(1+reads/32)); err != nil {
		return p, err
	}
	matters := func(file string) bool { return o.matters(file, of...) }
	if all.Contested != nil {
		clean, err := o.own.IsClean(ctx, all.Contested, matters)
		if err != nil || clean {
			return p, err
		}
	}
	p.unclean = all.Unclean
	for file, change := range all.Files {
		if matters(file) {
			p.changes[file] = change
		}
	}
	return p, nil
}

// rendersSameWithout reports whether a merge renders the same with commits taken back
// in its tree.
func (o *origins) rendersSameWithout(ctx context.Context, parts []contribution, m combination) (bool, error) {
	s, tree := gitobject.NewStore(o.branch.Store), m.commit.TreeHash
	for _, p := range parts {
		if err := o.spend(ctx, effortOfUndo*len(p.changes)); err != nil {
			return false, err
		}
		next, conflicts, err := gitobject.Undo(s, tree, p.changes)
		if err != nil || len(conflicts) > 0 || p.unclean {
			return false, err
		}
		tree = next
	}
	if tree == m.commit.TreeHash {
		return true, nil
	}
	t, err := gittree.OpenTree(s, tree)
	if err != nil {
		return false, err
	}
	set, err := o.renderTree(ctx, t, m.commit.Hash)
	return err == nil && set != nil && o.of(set) == m.state, err
}

// renderTree returns what a tree renders that is that of a commit with others taken back.
// It is nil where the tree does not render.
func (o *origins) renderTree(ctx context.Context, t *gittree.Tree, of plumbing.Hash) (*plan.Set, error) {
	if err := o.spend(ctx, effortOfRender); err != nil {
		return nil, err
	}
	d, err := o.branch.Renderer.RenderTree(t, of)
	if err != nil {
		return nil, err
	}
	o.unknown = cmp.Or(o.unknown, d.Unknown)
	return d.Set, nil
}

// read reports whether one of the files is read for what a merge or one of its sides
// renders.
func (m combination) read(files map[string]gitobject.Change) bool {
	for file := range files {
		for _, r := range append([]*rendering{m.rendering}, m.parents...) {
			if r.unknown || r.reads.Includes(file) {
				return true
			}
		}
	}
	return false
}
