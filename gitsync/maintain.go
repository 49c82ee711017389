package gitsync

import (
	"context"
	"errors"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/tranche-dev/tranche/gitsync/apiproblem"
	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/changeset"
	"github.com/tranche-dev/tranche/gitsync/credentials"
	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/execute"
	"github.com/tranche-dev/tranche/gitsync/metrics"
	"github.com/tranche-dev/tranche/gitsync/outcome"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/requests"
	"github.com/tranche-dev/tranche/gitsync/signers"
	"github.com/tranche-dev/tranche/plan"
)

// maintenance is what is left of the last sync of what is applied, while a commit waits
// for other sources.
type maintenance struct {
	// due is when the next one is, unless a user asks for it.
	due time.Time
	// intents and errors are those of the outcome.
	intents, errors plan.Problems
}

// maintainApplied keeps what is applied as its commit has it, while a newer commit waits for
// other sources. It commits what the cluster decides on top of the newer one: the
// other sources may never become ready. Nothing of the commit that waits is applied.
// It costs what a sync of an applied commit costs. So it runs as often as such a sync,
// and not each time the other sources are checked.
func maintainApplied(
	ctx context.Context, src *source, res *result, s *repository.Snapshot, policy signers.Policy,
) (next, error) {
	if src.gs.Status.AppliedCommit == "" {
		return next{}, nil
	}
	if time.Now().Before(src.cached.maintained.due) && !requests.IsAsked(src.gs) {
		res.outcome.Intents, res.outcome.MaintenanceErrors = src.cached.maintained.intents, src.cached.maintained.errors
		return next{}, nil
	}
	res.maintained, res.outcome.Intents, res.outcome.MaintenanceErrors = true, nil, nil
	a := attempt{snapshot: s, policy: policy, observer: src.observer()}
	applied, err := keepApplied(ctx, src, res, a)
	name := desired.CommitName(src.gs.Spec.Ref.String(), src.gs.Status.AppliedCommit)
	if err := putAside(src, res, err, name); err != nil {
		return next{}, err
	}
	waiting, err := renderWaiting(ctx, src, s, policy)
	if err != nil {
		return next{}, putAside(src, res, err, "")
	}
	a.changes = waiting
	after, err := writeBack(ctx, src, res, a, false)
	if err == nil && !after.moved && applied != nil {
		a.changes = applied
		after, err = writeNotes(ctx, src, res, a)
	}
	return after, putAside(src, res, err, "")
}

// keepApplied brings what is applied again, and returns the commit that it comes from.
// It is nil if there is none, or if it was not applied whole with the spec that the
// source has now. It is nil, too, if the commit has left the repository: then the
// desired state is not known.
func keepApplied(ctx context.Context, src *source, res *result, a attempt) (*changeset.Changes, error) {
	hash := plumbing.NewHash(src.gs.Status.AppliedCommit)
	if !apply.IsApplied(src.gs, src.gs.Status.AppliedCommit) || a.snapshot.HasEncodedObject(hash) != nil {
		return nil, nil
	}
	a.snapshot = a.snapshot.At(hash)
	if err := credentials.Verify(ctx, src.gs, a.snapshot, a.policy); err != nil {
		return nil, err
	}
	c, err := prepare(ctx, src, a)
	res.prepared(c)
	if err != nil {
		return nil, err
	}
	a.changes = c
	if err := applyCommit(ctx, src, res, a); err != nil {
		return c, err
	}
	return c, execute.Unfinished(src.execution(&res.outcome), c, a.observer)
}

// renderWaiting renders the commit that waits, for what is to be committed on top
// of it. The cluster is not asked for the scope of its kinds: they may be among
// what is waited for.
func renderWaiting(ctx context.Context, src *source, s *repository.Snapshot, policy signers.Policy) (*changeset.Changes, error) {
	r := &desired.Reader{
		Snapshot: s, Source: src.gs, Bases: src.bases(ctx), Folders: src.rendering.Folders(),
		Brought: map[string]signers.FileOrigin{}, Changes: src.cached.changes, Signatures: policy,
	}
	d, rendered, err := r.Read(nil)
	metrics.Rendered(src.name, rendered)
	return &changeset.Changes{Desired: d, Reader: r}, err
}

// putAside takes what went wrong beside the wait into the outcome, with what it is
// about. It returns what ends the sync.
func putAside(src *source, res *result, err error, about string) error {
	if err == nil || src.rendering.Busy() != nil || repository.IsDamaged(err) || isConflict(err) || errors.Is(err, context.Canceled) {
		return err
	}
	for _, p := range apiproblem.OfSource(src.gs, err) {
		said := *p
		if about != "" {
			said.Where = about + ": " + p.Where
		}
		res.outcome.MaintenanceErrors = append(res.outcome.MaintenanceErrors, &said)
	}
	return nil
}

// awaitAgain returns when to sync next while other sources are waited for.
func awaitAgain(src *source, res *result) time.Duration {
	src.cached.awaiting = sharedFor(src.gs.Spec.IntervalOrDefault())
	if res.maintained {
		src.cached.maintained = maintenance{
			due: time.Now().Add(res.outcome.Next(src.gs)), intents: res.outcome.Intents, errors: res.outcome.MaintenanceErrors,
		}
	}
	src.store()
	return max(outcome.AtOnce, time.Until(src.cached.maintained.due))
}
