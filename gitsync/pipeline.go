package gitsync

import (
	"context"
	"slices"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/tranche-dev/tranche/gitsync/apiproblem"
	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/changeset"
	"github.com/tranche-dev/tranche/gitsync/commitrange"
	"github.com/tranche-dev/tranche/gitsync/credentials"
	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/execute"
	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/metrics"
	"github.com/tranche-dev/tranche/gitsync/outcome"
	"github.com/tranche-dev/tranche/gitsync/prune"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/signers"
	"github.com/tranche-dev/tranche/gitsync/terms"
	"github.com/tranche-dev/tranche/gitsync/turns"
	"github.com/tranche-dev/tranche/plan"
)

// syncSource does the work of a sync. Its error, and the result, say how it went.
func syncSource(ctx context.Context, src *source, res *result) error {
	gs := src.gs
	src.cached.passed.catchUp(gs)
	res.outcome = outcome.Outcome{Branch: gs.Spec.Ref.String(), Commit: gs.Status.ObservedCommit}
	if gs.Spec.Suspend {
		res.outcome.Suspended = true
		return nil
	}
	if err := src.connect(ctx); err != nil {
		return err
	}
	for repaired, moved, late := false, 0, (*overtaken)(nil); ; {
		s, err := fetch(ctx, src, res)
		if err != nil {
			return err
		}
		after, err := syncSnapshot(ctx, src, res, s, late)
		late = after.overtaken
		switch {
		case after.moved:
			if moved++; moved > gitserver.MaxMoved || !gitserver.PauseMoved(ctx, moved) {
				res.again = true
				return ctx.Err()
			}
			src.since = time.Now()
		case err == nil, src.rendering.Busy() != nil:
			return err
		case repaired || !repository.IsDamaged(err):
			recordEndedAnyway(ctx, src)
			return err
		default:
			repaired = true
			src.log.Info("Cloning again", "because", err.Error())
			repair := func() (any, error) { return nil, src.mirrors.Of(src.remote).Repair(ctx, s) }
			if _, err := turns.Exchange(ctx, repair); err != nil {
				return err
			}
		}
	}
}

// syncSnapshot syncs a snapshot, after a write-back that its push has overtaken. It ends
// the use of the snapshot also where that panics: the folder of a clone that has a reader
// is never removed.
func syncSnapshot(ctx context.Context, src *source, res *result, s *repository.Snapshot, late *overtaken) (after next, err error) {
	defer s.Close()
	res.outcome.Author = authorIn(s, s.Commit)
	if late != nil {
		after, err = writeBackAgain(ctx, src, res, s, late)
	}
	if err == nil && !after.moved {
		after, err = syncCommit(ctx, src, res, s)
	}
	// It is none if the commit was applied. Without an error it may wait for other sources.
	res.outcome.Behind = commitrange.Behind(s, s.Commit, plumbing.NewHash(src.gs.Status.AppliedCommit))
	return after, err
}

// syncCommit brings the cluster to what a snapshot says. Everything is rendered, read and
// checked before the first write:
//
//	verify the tip        else the commit is refused
//	dependencies          else what is applied is maintained
//	render, govern, plan  what the commit says, and what it changes in the cluster
//	dry run, apply, prune all of the commit or nothing of it
//	write back, notes     what the cluster decided goes to the branch
//
// [reconciler.conclude] writes the status, and records the events.
func syncCommit(ctx context.Context, src *source, res *result, s *repository.Snapshot) (next, error) {
	src.cached.executed.Revalidate(src.gs)
	policy, err := src.policy(ctx)
	if err != nil {
		return next{}, err
	}
	if err := credentials.Verify(ctx, src.gs, s, policy); err != nil {
		return next{}, refuse(ctx, src, res, attempt{snapshot: s, policy: policy}, err)
	}
	if res.outcome.Awaited, err = awaited(ctx, src, s); err != nil {
		return next{}, err
	}
	if len(res.outcome.Awaited) > 0 {
		return maintainApplied(ctx, src, res, s, policy)
	}
	a := attempt{snapshot: s, policy: policy, observer: src.observer()}
	a.observer.First = apply.FirstOf(&src.gs.Status, src.lists, src.since)
	a.changes, err = prepare(ctx, src, a)
	res.prepared(a.changes)
	src.cache.installs(src.name, err == nil && a.observer.First != nil && a.changes.Quiet())
	if err == nil {
		err = applyCommit(ctx, src, res, a)
	}
	if err != nil {
		return writeBackRefused(ctx, src, res, a, refuse(ctx, src, res, a, err))
	}
	if len(res.outcome.Waiting) > 0 {
		return next{}, nil
	}
	res.applied(src.gs, a)
	if after, err := writeBack(ctx, src, res, a, false); err != nil || after.moved {
		return after, err
	}
	if after, err := writeNotes(ctx, src, res, a); err != nil || after.moved {
		return after, err
	}
	return next{}, execute.Unfinished(src.execution(&res.outcome), a.changes, a.observer)
}

// attempt is what a sync of one commit works on.
type attempt struct {
	snapshot *repository.Snapshot
	policy   signers.Policy
	observer *apply.Observer
	// changes is nil until the commit is prepared, and where nothing of it renders.
	changes *changeset.Changes
}

// prepare renders a commit, and reads the cluster's side of what of it counts. If there are
// problems, it returns the changes with them, unless the commit does not render. If only a part
// of it is not valid, the changes are partial: the rest decides about releases under way.
func prepare(ctx context.Context, src *source, a attempt) (*changeset.Changes, error) {
	r := src.reader(ctx, a.snapshot, a.policy)
	d, rendered, err := r.Read(src.cached.desired)
	invalid := plan.ProblemsOf(err)
	switch {
	case err == nil:
		err = src.take(a, d, rendered)
	case d != nil && slices.ContainsFunc(inventory.Read(src.gs.Status.Inventory).Without(nil), inventory.IsRelease):
		err = nil
	}
	if err != nil {
		return nil, err
	}
	governed, err := terms.Govern(ctx, r, d, a.observer)
	if governed == nil {
		return nil, apiproblem.Or(invalid, err)
	}
	invalid = slices.Concat(invalid, plan.ProblemsOf(err))
	if len(invalid) == 0 {
		src.cached.applied = governed.Set
	}
	return changeset.Prepare(ctx, changeset.Input{
		Source: src.gs, Desired: d, Invalid: invalid, Reader: r, Governed: governed, Observer: a.observer, Own: src.own,
		Siblings: src.siblings(ctx), Selector: src.options.Selector,
	})
}

// take keeps what a commit says, and whether it is applied already.
func (src *source) take(a attempt, d *desired.State, rendered bool) error {
	src.cached.desired = d
	metrics.Rendered(src.name, rendered)
	src.log.V(1).Info("Rendered", "commit", d.Commit, "rendered", rendered, "objects", len(d.Set.Objects), "releases", len(d.Set.Releases))
	if err := prune.RefuseEmpty(src.gs, d.Set); err != nil {
		return err
	}
	return src.unaffected.Advance(src.log, a.snapshot, src.gs, d)
}

// applyCommit tries all of a commit, applies it, and prunes.
func applyCommit(ctx context.Context, src *source, res *result, a attempt) error {
	executed, err := execute.Commit(ctx, src.execution(&res.outcome), a.changes, a.observer)
	res.add(executed)
	return err
}
