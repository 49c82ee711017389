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
	"github.com/tranche-dev/tranche/gitsync/report"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/plan"
)

// refuse does what can be done where a commit is refused, and returns the refusal with
// what waits for it.
func refuse(ctx context.Context, src *source, res *result, a attempt, refusal error) error {
	ps := plan.ProblemsOf(refusal)
	if len(ps) == 0 || ctx.Err() != nil || repository.IsDamaged(refusal) { // a mirror that is healed may render
		return refusal
	}
	ps = slices.Clone(ps)
	a.observer = src.observer()
	if a.changes != nil && a.changes.Releases != nil {
		waiting, executed, more := execute.Refused(ctx, src.execution(&res.outcome), a.changes, a.observer)
		res.add(executed)
		ps = append(ps, more...)
		if len(waiting) > 0 {
			res.outcome.Held = waiting
		}
	}
	more, err := restoreApplied(ctx, src, res, a)
	switch {
	case repository.IsDamaged(err):
		return err
	case isConflict(err):
		res.again = true
	default:
		more = append(more, apiproblem.OfSource(src.gs, err)...)
	}
	return append(ps, report.NewProblems(ps, more)...)
}

// writeBackRefused commits the rollbacks that the cluster decided on top of a refused
// commit of which all renders, and returns the refusal. Such a revert has all else as the tip has
// it, so it makes nothing worse. Without it the branch would bring the revision that
// failed again. An approval given in the cluster waits for a commit that is applied: the
// refused one may have other steps.
func writeBackRefused(ctx context.Context, src *source, res *result, a attempt, refusal error) (next, error) {
	ps := plan.ProblemsOf(refusal)
	interrupted := res.again || src.rendering.Busy() != nil || ctx.Err() != nil
	if a.changes == nil || a.changes.Partial || a.changes.Releases == nil || len(ps) == 0 || interrupted || repository.IsDamaged(refusal) {
		return next{}, refusal
	}
	after, err := writeBack(ctx, src, res, a, true)
	switch more := plan.ProblemsOf(err); {
	case after.moved:
		return after, nil
	case err == nil:
		return next{}, refusal
	case len(more) > 0:
		return next{}, append(slices.Clone(ps), report.NewProblems(ps, more)...)
	case repository.IsDamaged(err), src.rendering.Busy() != nil:
		return next{}, err
	default:
		src.log.Info("Not written back", "because", err.Error())
		return next{}, refusal
	}
}

// restoreApplied brings again what was deleted or changed of the commit that is applied. It
// does so object by object: one that is refused today keeps no other from coming back.
// It brings only those BatchReleases that are gone.
func restoreApplied(ctx context.Context, src *source, res *result, a attempt) (plan.Problems, error) {
	if a.changes != nil && a.changes.Partial {
		a.changes = nil
	}
	if !apply.IsApplied(src.gs, src.gs.Status.AppliedCommit) {
		return execute.Gone(src.execution(&res.outcome), a.changes, a.observer), nil
	}
	refused := a.changes
	if refused == nil || refused.Desired.Commit != src.gs.Status.AppliedCommit {
		var err error
		a.changes, err = prepareApplied(ctx, src, a)
		if a.changes == nil {
			return nil, err // it does not render any more, or has left the repository
		}
	}
	executed, ps, err := execute.Restore(ctx, src.execution(&res.outcome), a.changes, refused, a.observer)
	res.add(executed)
	return ps, err
}

// prepareApplied renders the commit that is applied, and reads the cluster's side of it.
func prepareApplied(ctx context.Context, src *source, a attempt) (*changeset.Changes, error) {
	hash := plumbing.NewHash(src.gs.Status.AppliedCommit)
	if a.snapshot.HasEncodedObject(hash) != nil {
		return nil, nil
	}
	a.snapshot = a.snapshot.At(hash)
	a.snapshot.Tip = hash // the tip may not be signed
	if err := credentials.Verify(ctx, src.gs, a.snapshot, a.policy); err != nil {
		return nil, err
	}
	tip := src.cached.desired
	if src.cached.kept != nil {
		src.cached.desired = src.cached.kept
	}
	c, err := prepare(ctx, src, a)
	src.cached.kept, src.cached.desired = src.cached.desired, tip
	if c != nil && c.Partial {
		c = nil
	}
	return c, err
}
