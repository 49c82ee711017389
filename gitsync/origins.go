package gitsync

import (
	"cmp"
	"context"
	"path"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan"
)

// With spec.approvals.distinctAuthor an approver has written nothing of what is
// approved: nothing of the difference between what counted last and what a commit
// renders for the Deployment. The commits of that difference are found by what they
// render, since messages, authors and the shape of the history can be forged:
//
//   - The walk begins at the commit and ends at commits that render what counted last,
//     and at those that were in the history of the commit which it came from. Where a
//     force-push has left that one behind, the history is walked to its beginning.
//   - A commit counts that renders something else for the Deployment than its first
//     parent, or that renders nothing and changes a file which the rendering reads.
//   - A merge counts where git would have merged its parents in another way, whatever
//     its first parent is. The parents of every merge are walked, too.
//   - A merge can render what neither side renders, of commits that each render what
//     their parents do: one side uses a folder, the other side changes it. Such a merge
//     counts, with the commits that it takes for that (combined.go).

// origins looks for the commits that made a difference.
type origins struct {
	*history
	// of is what is compared of a rendering.
	of func(*plan.Set) string
	// was is what counted last; empty: not known.
	was string
	// base is the commit that it came from; zero: not known, or not in the history.
	base plumbing.Hash
	// past are the commits in the history of base; nil until a commit is met that is
	// neither base nor renders what counted last.
	past map[plumbing.Hash]bool
}

// rendering is what a commit renders for a Deployment.
type rendering struct {
	commit *object.Commit
	tree   *treeFS
	state  string // of a commit that renders nothing one of its own
	// reads is what is read to find that out. Of a commit that renders nothing it
	// includes what is read in the next one that renders.
	reads Reads
}

// releaseState returns what decides who has written a release: the template and the
// plan of a Deployment.
func releaseState(release *plan.Release) func(*plan.Set) string {
	key := workloadOf(release)
	return func(set *plan.Set) string {
		return plan.TemplateDigest(templateIn(set, release)) + " " + string(set.Terms(key.Namespace, key.Name))
	}
}

// planState returns what decides who has written a plan.
func planState(key client.ObjectKey) func(*plan.Set) string {
	return func(set *plan.Set) string { return string(set.Terms(key.Namespace, key.Name)) }
}

// find returns the commits of the difference between what counted last and what a
// commit renders.
func (o *origins) find(ctx context.Context, commit plumbing.Hash) ([]plumbing.Hash, error) {
	first, err := o.render(commit, nil)
	if err != nil {
		return nil, err
	}
	if !o.base.IsZero() {
		there, err := o.precedes(ctx, o.base, commit)
		if err != nil {
			return nil, err
		}
		if !there {
			o.base = plumbing.ZeroHash
		}
	}
	var list []plumbing.Hash
	var merges []combination
	seen := map[plumbing.Hash]bool{commit: true}
	for queue := []*rendering{first}; len(queue) > 0; {
		r := queue[0]
		queue = queue[1:]
		if before, err := o.countedBefore(ctx, r); err != nil {
			return nil, err
		} else if before {
			continue
		}
		parents := make([]*rendering, len(r.commit.ParentHashes))
		for i, p := range r.commit.ParentHashes {
			if parents[i], err = o.render(p, r); err != nil {
				return nil, err
			}
			if !seen[p] {
				seen[p] = true
				queue = append(queue, parents[i])
			}
		}
		own, combines, err := o.judge(r, parents)
		if err != nil {
			return nil, err
		}
		if own {
			list = append(list, r.commit.Hash)
		}
		if combines {
			merges = append(merges, combination{r, parents})
		}
		if len(list) > maxChange || len(seen) > maxWalk {
			return nil, errTooManyCommits
		}
	}
	return o.withCombined(ctx, list, merges)
}

// countedBefore reports whether a commit has nothing of the difference.
func (o *origins) countedBefore(ctx context.Context, r *rendering) (bool, error) {
	if r.commit.Hash == o.base || o.was != "" && r.state == o.was {
		return true, ctx.Err()
	}
	if o.base.IsZero() {
		return false, ctx.Err()
	}
	err := o.readPast(ctx)
	return o.past[r.commit.Hash], err
}

// readPast sets past, where base is known.
func (o *origins) readPast(ctx context.Context) (err error) {
	if o.past == nil && !o.base.IsZero() {
		o.past, err = o.ancestors(ctx, o.base)
	}
	return cmp.Or(err, ctx.Err())
}

// render returns what a commit renders, given its child in the walk. A commit in which
// nothing differs that was read for the child renders the same, and is not rendered.
func (o *origins) render(commit plumbing.Hash, child *rendering) (*rendering, error) {
	c, err := object.GetCommit(o.snapshot, commit)
	if err != nil {
		return nil, missing("commit", commit, err)
	}
	t, err := newTreeFS(o.snapshot, commit)
	if err != nil {
		return nil, err
	}
	if child != nil && o.bases == nil {
		differ, err := differ(child.reads, child.tree, t)
		if err != nil {
			return nil, err
		}
		if !differ {
			return &rendering{c, t, child.state, child.reads}, nil
		}
	}
	d, err := o.older(commit, t)
	if err != nil {
		return nil, err
	}
	if d.set != nil {
		return &rendering{c, t, o.of(d.set), d.reads}, nil
	}
	reads := Reads{}
	if child != nil {
		for p, r := range child.reads {
			reads[p] = r
		}
	}
	for p, r := range d.reads {
		if _, ok := reads[p]; !ok {
			reads[p] = r
		}
	}
	return &rendering{c, t, "nothing in " + commit.String(), reads}, nil
}

// differ reports whether reads have other answers in one tree than in another.
func differ(reads Reads, a, b *treeFS) (bool, error) {
	for p, was := range reads {
		one, err := a.again(p, was)
		if err != nil {
			return false, err
		}
		other, err := b.again(p, was)
		if err != nil || one != other {
			return true, err
		}
	}
	return false, nil
}

// judge reports whether a commit has a part in the difference, and whether it is a merge
// that renders something else than what its sides have made of what they began with.
func (o *origins) judge(r *rendering, parents []*rendering) (own, combines bool, err error) {
	same := len(parents) > 0
	for _, p := range parents {
		same = same && p.state == r.state
	}
	switch {
	case same:
		return false, false, nil
	case len(parents) != 2:
		return true, len(parents) > 2, nil
	}
	a, b := parents[0], parents[1]
	bases, err := mergeBases(a.commit, b.commit)
	if err != nil || len(bases) != 1 {
		return true, true, err
	}
	base, err := o.render(bases[0].Hash, r)
	if err != nil {
		return false, false, err
	}
	switch base.state { // a merge of what is rendered
	case a.state:
		combines = r.state != b.state
	case b.state:
		combines = r.state != a.state
	default:
		combines = true
	}
	clean, err := o.isCleanMerge(r.commit, bases[0], []*object.Commit{a.commit, b.commit}, r, a, b)
	return !clean, combines, err
}

func mergeBases(a, b *object.Commit) ([]*object.Commit, error) {
	bases, err := a.MergeBase(b)
	if err != nil {
		return nil, missing("history", a.Hash, err)
	}
	return bases, nil
}

// isCleanMerge reports whether a merge of two commits has in all files that matter for
// renderings what git makes of them by itself. Forges make such merges, and sign them,
// if at all, with a key of their own.
func (o *origins) isCleanMerge(merge, base *object.Commit, parents []*object.Commit, of ...*rendering) (bool, error) {
	var sides [3]map[string]fileChange
	var err error
	for i, c := range []*object.Commit{parents[0], parents[1], merge} {
		if sides[i], err = changed(o.snapshot, base.TreeHash, c.TreeHash); err != nil {
			return false, err
		}
	}
	for _, side := range sides {
		for file, c := range side {
			if !o.matters(file, of...) {
				continue
			}
			clean, err := o.isCleanFile(c.from, at3(sides[0], file, c), at3(sides[1], file, c), at3(sides[2], file, c))
			if err != nil || !clean {
				return false, err
			}
		}
	}
	return true, nil
}

// at3 returns a file as one side of a merge has it, given a change of it by any side.
func at3(side map[string]fileChange, file string, change fileChange) object.TreeEntry {
	if c, ok := side[file]; ok {
		return c.to
	}
	return change.from
}

// matters reports whether a file may be read for the rendering. The approvals are not.
func (o *origins) matters(file string, sides ...*rendering) bool {
	in := func(dir string) bool {
		dir = path.Clean(dir)
		return dir == "." || file == dir || strings.HasPrefix(file, dir+"/")
	}
	if in(approvalsPath(&o.gs.Spec)) {
		return false
	}
	if in(o.gs.Spec.Path) {
		return true
	}
	for _, s := range sides {
		if s.reads.read(file) {
			return true
		}
	}
	return false
}

// isCleanFile reports whether a merged file is what a merge of both sides makes.
func (o *origins) isCleanFile(base, a, b, merged object.TreeEntry) (bool, error) {
	switch {
	case same(a, b), same(b, base):
		return same(merged, a), nil
	case same(a, base):
		return same(merged, b), nil
	}
	var text [4][]byte
	for i, e := range []object.TreeEntry{base, a, b, merged} {
		if !e.Mode.IsFile() || e.Mode != merged.Mode {
			return false, nil
		}
		var err error
		if text[i], err = readBlob(o.snapshot, e.Hash); err != nil {
			return false, err
		}
	}
	want, ok := merge3(text[0], text[1], text[2])
	return ok && string(want) == string(text[3]), nil
}
