package gitsync

import (
	"context"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/tranche-dev/tranche/gitsync/apiproblem"
	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/changeset"
	"github.com/tranche-dev/tranche/gitsync/credentials"
	"github.com/tranche-dev/tranche/gitsync/execute"
	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/gitsync/report"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/signers"
	"github.com/tranche-dev/tranche/plan"
)

// refuse does what can be done where a commit is refused, and returns the refusal with
// what waits for it. The commit is nil where it does not render.
func (l *look) refuse(ctx context.Context, s *repository.Snapshot, by signers.Policy, c *changeset.Changes, refusal error) error {
	ps := plan.ProblemsOf(refusal)
	if len(ps) == 0 || ctx.Err() != nil || repository.IsDamaged(refusal) { // a mirror that is healed may render
		return refusal
	}
	ps = slices.Clone(ps)
	o := apply.NewObserver(l.gs, l.as, l.own)
	if c != nil && c.Releases != nil {
		waiting, result, more := execute.Refused(ctx, l.execution(), c, o)
		l.take(result)
		ps = append(ps, more...)
		if len(waiting) > 0 {
			l.outcome.Held = waiting
		}
	}
	more, err := l.keepUp(ctx, s, by, c, o)
	switch {
	case repository.IsDamaged(err):
		return err
	case isConflict(err):
		l.again = true
	default:
		more = append(more, apiproblem.OfSource(l.gs, err)...)
	}
	return append(ps, report.NewProblems(ps, more)...)
}

// writeBackRefused commits the rollbacks that the cluster decided on top of a refused
// commit that renders, and returns the refusal. Such a revert has all else as the tip has
// it, so it makes nothing worse. Without it the branch would bring the revision that
// failed again. An approval given in the cluster waits for a commit that is applied: the
// refused one may have other steps.
func (l *look) writeBackRefused(
	ctx context.Context, r gitserver.Remote, s *repository.Snapshot, c *changeset.Changes, o *apply.Observer, refusal error,
) (step, error) {
	ps := plan.ProblemsOf(refusal)
	interrupted := l.again || l.rendering.Busy() != nil || ctx.Err() != nil
	if c == nil || c.Releases == nil || len(ps) == 0 || interrupted || repository.IsDamaged(refusal) {
		return step{}, refusal
	}
	next, err := l.writeBack(ctx, r, s, c, o, true)
	switch more := plan.ProblemsOf(err); {
	case next.moved:
		return next, nil
	case err == nil:
		return step{}, refusal
	case len(more) > 0:
		return step{}, append(slices.Clone(ps), report.NewProblems(ps, more)...)
	case repository.IsDamaged(err), l.rendering.Busy() != nil:
		return step{}, err
	default:
		l.log.Info("not written back", "because", err.Error())
		return step{}, refusal
	}
}

// keepUp brings again what was deleted or changed of the commit that is applied. It
// does so object by object: one that is refused today keeps no other from coming back.
// It brings only those BatchReleases that are gone.
func (l *look) keepUp(
	ctx context.Context, s *repository.Snapshot, by signers.Policy, c *changeset.Changes, o *apply.Observer,
) (plan.Problems, error) {
	if !apply.IsApplied(l.gs, l.gs.Status.AppliedCommit) {
		return execute.Gone(l.execution(), c, o), nil
	}
	refused := c
	if c == nil || c.Desired.Commit != l.gs.Status.AppliedCommit {
		ignored, withheld, approvals := l.outcome.Ignored, l.outcome.Withheld, l.approvals
		var err error
		c, err = l.prepareApplied(ctx, s, by, o)
		l.outcome.Ignored, l.outcome.Withheld, l.approvals = ignored, withheld, approvals
		if c == nil {
			return nil, err // it does not render any more, or has left the repository
		}
	}
	result, ps, err := execute.Restore(ctx, l.execution(), c, refused, o)
	l.take(result)
	return ps, err
}

// prepareApplied renders the commit that is applied, and reads the cluster's side of it.
func (l *look) prepareApplied(
	ctx context.Context, s *repository.Snapshot, by signers.Policy, o *apply.Observer,
) (*changeset.Changes, error) {
	hash := plumbing.NewHash(l.gs.Status.AppliedCommit)
	if s.HasEncodedObject(hash) != nil {
		return nil, nil
	}
	applied := s.At(hash)
	applied.Tip = hash // the tip may not be signed
	if err := credentials.Verify(ctx, l.gs, applied, by); err != nil {
		return nil, err
	}
	tip := l.keep.desired
	if l.keep.kept != nil {
		l.keep.desired = l.keep.kept
	}
	c, err := l.prepare(ctx, applied, by, o)
	l.keep.kept, l.keep.desired = l.keep.desired, tip
	return c, err
}
