package writeback

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/turns"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// base decides on which commit to build, and returns what is still to be
// committed. Without a branch for review that is the tip of the watched one.
func (w *attempt) base(ctx context.Context, pending []intent) ([]intent, error) {
	tip, err := object.GetCommit(w.scratch, w.head)
	if err != nil {
		return nil, gittree.Missing("commit", w.head, err)
	}
	w.tree = tip.TreeHash
	if !desired.Reviews(&w.Source.Spec) {
		return pending, nil
	}
	w.branch = w.Source.Spec.WriteBack.Branch
	return w.reviewBase(ctx, pending)
}

// reviewBase fetches the branch for review. Its commits are never taken away. It is
// made, or moved forward, on top of the tip of the watched branch. If it has others
// that are not merged yet, the new commits go on top of those. If it has fallen
// behind, the first commit is a merge of the two.
func (w *attempt) reviewBase(ctx context.Context, pending []intent) ([]intent, error) {
	s, err := w.fetchReview(ctx)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return pending, nil
	}
	// The older snapshot does not see what has come since.
	w.scratch, w.from = gitobject.NewStore(s), s.Commit
	c, tip, err := tips(w.scratch, s.Commit, w.head)
	if err != nil {
		return nil, err
	}
	merged, err := c.IsAncestor(tip)
	if err != nil || merged {
		return pending, err
	}
	if err := w.reviewIsSigned(ctx); err != nil {
		return nil, err
	}
	ahead, err := tip.IsAncestor(c)
	if err != nil {
		return nil, err
	}
	unsaid, waiting, err := w.unreviewed(ctx, s.Commit, pending)
	if err != nil {
		return nil, err
	}
	if len(unsaid) > 0 && !ahead { // what waits there is committed again, on top of what is new here
		w.also = s.Commit
		return pending, nil
	}
	if w.waitForReview(waiting); len(unsaid) == 0 {
		return nil, nil
	}
	w.head, w.tree = s.Commit, c.TreeHash
	if w.set, err = renderReview(w.Reader, w.scratch, c.TreeHash, w.branch); err != nil {
		return nil, err
	}
	return unsaid, nil
}

// fetchReview returns the branch for review; nil: there is none yet.
func (w *attempt) fetchReview(ctx context.Context) (*repository.Snapshot, error) {
	looking, cancel := context.WithTimeout(ctx, w.Source.Spec.TimeoutOrDefault())
	defer cancel()
	s, err := turns.Exchange(ctx, func() (*repository.Snapshot, error) { return w.Mirror.Fetch(looking, w.Remote, w.branch) })
	if p, ok := errors.AsType[*plan.Problem](err); ok && p.Reason == v1alpha1.ReasonBranchNotFound {
		w.from = plumbing.ZeroHash
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	w.review = s
	if !s.SharesDisk(w.Snapshot) {
		return nil, gitserver.ErrBranchMoved // the mirror was cloned again: both from the new one
	}
	return s, nil
}

// renderReview renders the tree that the new commits go on top of.
func renderReview(r *desired.Reader, store *gitobject.Store, tree plumbing.Hash, branch string) (*plan.Set, error) {
	t, err := gittree.OpenTree(store, tree)
	if err != nil {
		return nil, err
	}
	set, err := r.Render(t)
	if err != nil {
		return nil, &plan.Problem{
			Reason: v1alpha1.ReasonWriteBackConflict, Where: "branch " + branch,
			Err: errors.New("does not render: " + plan.OneLine(err.Error())), Hint: "correct it, or delete it",
		}
	}
	return set, nil
}

// tips returns the commit at the tip of the branch for review, and the one to write on.
func tips(store *gitobject.Store, review, head plumbing.Hash) (c, tip *object.Commit, err error) {
	if c, err = object.GetCommit(store, review); err != nil {
		return nil, nil, gittree.Missing("commit", review, err)
	}
	if tip, err = object.GetCommit(store, head); err != nil {
		return nil, nil, gittree.Missing("commit", head, err)
	}
	return c, tip, nil
}

// reviewIsSigned checks the commits of the branch for review that are not in the history
// of the watched tip. If spec.verify is set, a listed key must have signed each of them.
// The signature of the controller covers the whole history of its commit. On top of a
// commit that a committer may not bring, it would let that commit be applied.
func (w *attempt) reviewIsSigned(ctx context.Context) error {
	by := w.Reader.Signatures
	if by.Verify == nil {
		return nil
	}
	past, err := gitobject.Ancestors(ctx, w.Snapshot, w.Snapshot.Commit)
	if err != nil {
		return err
	}
	first, err := object.GetCommit(w.review, w.review.Commit)
	if err != nil {
		return gittree.Missing("commit", w.review.Commit, err)
	}
	for next := []*object.Commit{first}; len(next) > 0; {
		c := next[len(next)-1]
		_, why, err := by.SignerOf(ctx, w.review, c.Hash, by.Verify)
		if err != nil {
			return err
		}
		if why != "" {
			return &plan.Problem{
				Reason: v1alpha1.ReasonWriteBackConflict, Where: "branch " + w.branch,
				Err: fmt.Errorf("commit %s is not in the history of %s, and spec.verify does not let it be applied: %s",
					plan.ShortCommit(c.Hash.String()), w.Source.Spec.Ref.Branch, why),
				Hint: "find out who pushed it, and delete the branch; it is made again",
			}
		}
		if next, err = gitobject.Unseen(w.review, c, past, next[:len(next)-1]); err != nil {
			return err
		}
	}
	return nil
}

// unreviewed returns what the branch for review does not say yet, and what
// waits there.
func (w *attempt) unreviewed(ctx context.Context, review plumbing.Hash, pending []intent) (unsaid, waiting []intent, err error) {
	renderer := *w.Reader
	renderer.Snapshot = w.review
	h := desired.NewHistory(&renderer, w.State)
	for _, in := range pending {
		list, err := commitsSince(ctx, w.scratch, review, plumbing.NewHash(in.commit))
		if err != nil {
			return nil, nil, err
		}
		done, err := committed(ctx, h, in, list)
		if err != nil {
			return nil, nil, err
		}
		if done {
			waiting = append(waiting, in)
		} else {
			unsaid = append(unsaid, in)
		}
	}
	return unsaid, waiting, nil
}

// waitForReview says where intents are meanwhile.
func (w *attempt) waitForReview(waiting []intent) {
	for _, in := range waiting {
		p := w.problem(in)
		p.Reason, p.Err = v1alpha1.ReasonWaitingForReview, fmt.Errorf("%w; branch %s does", p.Err, w.branch)
		p.Hint = "merge it into " + w.Source.Spec.Ref.Branch
		w.problems = append(w.problems, p)
	}
}
