package authors

import (
	"context"
	"maps"
	"regexp"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittree"
)

// The controller takes commits back by a commit of its own, and other changes since may
// stay. No person has written that commit, and no listed key need have signed it. It is
// found by its content, which is computed again: its message only says which commits to
// take back. Its author, its trailers and its signature prove nothing.
//
// Such a commit needs no author. The authors of what it brings back count. So the walk goes
// on at the parents of the commits that it takes back, also if these took something back
// themselves. If a listed key has signed the commit, that signer counts, too.
//
// A person can make such a commit without a signature. So it must not be a way to change
// what was released. It counts like any other commit in these cases:
//
//   - It takes a commit back that is not in its history, or is no younger than what counted
//     last. Then what it brings back is older than the walk, and its authors are not found.
//   - It changes anything else, also what is not read for the rendering.
//   - It takes only some files back, and renders something else than with all of them.

// taken matches the lines by which git and the controller name a commit that is taken back.
var taken = regexp.MustCompile(`(?m)^This reverts commit ([0-9a-f]{64}|[0-9a-f]{40})\b`)

// maxTaken is how many commits may be taken back by one.
const maxTaken = 100

// effortOfOrder is that of finding which of two commits is older.
const effortOfOrder = 10_000

// goBack adds to a queue where the walk goes on for a commit that takes others back.
func (o *origins) goBack(ctx context.Context, r *rendering, seen map[plumbing.Hash]bool, queue []*rendering) ([]*rendering, error) {
	from, err := o.takesBack(ctx, r)
	if err != nil || len(from) == 0 {
		return queue, err
	}
	if o.takenBack == nil {
		o.takenBack = map[plumbing.Hash]bool{}
	}
	o.takenBack[r.commit.Hash] = true
	for _, f := range from {
		if !seen[f.commit.Hash] {
			seen[f.commit.Hash] = true
			queue = append(queue, f)
		}
	}
	return queue, nil
}

// isTakenBack reports whether a commit needs no author, given one on top of it.
func (o *origins) isTakenBack(ctx context.Context, c *object.Commit, tip *rendering) (bool, error) {
	if !taken.MatchString(c.Message) {
		return false, nil
	}
	r, err := o.render(c.Hash, tip)
	if err != nil {
		return false, err
	}
	from, err := o.takesBack(ctx, r)
	return len(from) > 0, err
}

// reverted is a commit that is taken back, and its first parent.
type reverted struct{ after, before *rendering }

// takesBack returns the commits to which a commit goes back: the first parents of those
// that it takes back. It returns none if the commit makes any other change.
func (o *origins) takesBack(ctx context.Context, r *rendering) ([]*rendering, error) {
	if len(r.commit.ParentHashes) != 1 || o.base.IsZero() {
		return nil, nil
	}
	list, err := o.named(ctx, r)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	own, err := o.own.Of(ctx, r.commit)
	if err != nil {
		return nil, err
	}
	s := gitobject.NewStore(o.branch.Store)
	tree, ok, err := o.undo(ctx, s, r, list, func(file string) bool {
		_, changed := own.Files[file]
		return changed
	})
	if err != nil || !ok || tree != r.commit.TreeHash {
		return nil, err
	}
	if ok, err = o.isWhole(ctx, s, r, list); err != nil || !ok {
		return nil, err
	}
	from := make([]*rendering, len(list))
	for i, x := range list {
		from[i] = x.before
	}
	return from, nil
}

// isWhole reports whether a commit renders what its parent does with all files of the
// commits taken back.
func (o *origins) isWhole(ctx context.Context, s *gitobject.Store, r *rendering, list []reverted) (bool, error) {
	parent, err := o.render(r.commit.ParentHashes[0], r)
	if err != nil {
		return false, err
	}
	of := []*rendering{r, parent}
	for _, x := range list {
		of = append(of, x.after, x.before)
	}
	tree, ok, err := o.undo(ctx, s, r, list, func(file string) bool {
		return slices.ContainsFunc(of, func(r *rendering) bool { return r.unknown || r.reads.Includes(file) })
	})
	if err != nil || !ok || tree == r.commit.TreeHash {
		return ok, err
	}
	t, err := gittree.OpenTree(s, tree)
	if err != nil {
		return false, err
	}
	set, err := o.renderTree(ctx, t, r.commit.Hash)
	return err == nil && set != nil && o.of(set) == r.state, err
}

// named returns the commits that the message of a commit says are taken back, in that
// order. It returns none if one of them must not be.
func (o *origins) named(ctx context.Context, r *rendering) ([]reverted, error) {
	var list []reverted
	for _, m := range taken.FindAllStringSubmatch(r.commit.Message, maxTaken+1) {
		if len(list) == maxTaken || !o.branch.has(plumbing.NewHash(m[1])) {
			return nil, nil
		}
		hash := plumbing.NewHash(m[1])
		c, err := object.GetCommit(o.branch.Store, hash)
		if err != nil || len(c.ParentHashes) == 0 {
			return nil, nil //nolint:nilerr // it is no commit
		}
		for _, order := range [][2]plumbing.Hash{{hash, r.commit.ParentHashes[0]}, {o.base, c.ParentHashes[0]}} {
			if err := o.spend(ctx, effortOfOrder); err != nil {
				return nil, err
			}
			if is, err := o.branch.Order.PrecedesItself(ctx, o.branch.Store, order[0], order[1]); err != nil || !is {
				return nil, err
			}
		}
		var x reverted
		if x.after, err = o.render(hash, r); err != nil {
			return nil, err
		}
		if x.before, err = o.render(c.ParentHashes[0], x.after); err != nil {
			return nil, err
		}
		list = append(list, x)
	}
	return list, nil
}

// undo takes commits back in the tree of the parent of another, as the controller does,
// and only some files of them. It returns false for a conflict.
func (o *origins) undo(
	ctx context.Context, s *gitobject.Store, by *rendering, list []reverted, which func(file string) bool,
) (plumbing.Hash, bool, error) {
	tree, err := gitobject.TreeHash(s, by.commit.ParentHashes[0])
	if err != nil {
		return tree, false, err
	}
	for _, x := range list {
		changes, err := gitobject.Diff(o.branch.Store, x.before.commit.TreeHash, x.after.commit.TreeHash)
		if err != nil {
			return tree, false, err
		}
		if err := o.spend(ctx, effortOfUndo*(1+len(changes))); err != nil {
			return tree, false, err
		}
		if changes, err = gitobject.Follow(s, x.after.commit.TreeHash, tree, changes); err != nil {
			return tree, false, err
		}
		changes = maps.Clone(changes)
		maps.DeleteFunc(changes, func(file string, _ gitobject.Change) bool { return !which(file) })
		next, conflicts, err := gitobject.Undo(s, tree, changes)
		if err != nil || len(conflicts) > 0 {
			return tree, false, err
		}
		tree = next
	}
	return tree, true, nil
}
