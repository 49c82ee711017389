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
	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/gitsync/metrics"
	"github.com/tranche-dev/tranche/gitsync/outcome"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/requests"
	"github.com/tranche-dev/tranche/gitsync/signers"
	"github.com/tranche-dev/tranche/plan"
)

// interim is what is left of the last sync of what is applied, while a commit waits
// for other sources.
type interim struct {
	// due is when the next one is, unless a user asks for it.
	due time.Time
	// intents and amiss are those of the outcome.
	intents, amiss plan.Problems
}

// meanwhile keeps what is applied as its commit has it, while a newer commit waits for
// other sources. It commits what the cluster decides on top of the newer one: the
// other sources may never become ready. Nothing of the commit that waits is applied.
// It costs what a sync of an applied commit costs. So it runs as often as such a sync,
// and not each time the other sources are checked.
func (l *look) meanwhile(ctx context.Context, r gitserver.Remote, s *repository.Snapshot, by signers.Policy) (step, error) {
	if l.gs.Status.AppliedCommit == "" {
		return step{}, nil
	}
	if time.Now().Before(l.keep.interim.due) && !requests.IsAsked(l.gs) {
		l.outcome.Intents, l.outcome.MaintenanceErrors = l.keep.interim.intents, l.keep.interim.amiss
		return step{}, nil
	}
	l.kept, l.outcome.Intents, l.outcome.MaintenanceErrors = true, nil, nil
	o := apply.NewObserver(l.gs, l.as, l.own)
	applied, err := l.keepApplied(ctx, s, by, o)
	if err := l.putAside(err, desired.CommitName(l.gs.Spec.Ref.String(), l.gs.Status.AppliedCommit)); err != nil {
		return step{}, err
	}
	waiting, err := l.renderWaiting(ctx, s, by)
	if err != nil {
		return step{}, l.putAside(err, "")
	}
	next, err := l.writeBack(ctx, r, s, waiting, o, false)
	if err == nil && !next.moved && applied != nil {
		next, err = l.writeNotes(ctx, r, s, applied, o)
	}
	return next, l.putAside(err, "")
}

// keepApplied brings what is applied again, and returns the commit that it comes from.
// It is nil if there is none, or if it was not applied whole with the spec that the
// source has now. It is nil, too, if the commit has left the repository: then the
// desired state is not known.
func (l *look) keepApplied(ctx context.Context, s *repository.Snapshot, by signers.Policy, o *apply.Observer) (*changeset.Changes, error) {
	hash := plumbing.NewHash(l.gs.Status.AppliedCommit)
	if !apply.IsApplied(l.gs, l.gs.Status.AppliedCommit) || s.HasEncodedObject(hash) != nil {
		return nil, nil
	}
	applied := s.At(hash)
	if err := credentials.Verify(ctx, l.gs, applied, by); err != nil {
		return nil, err
	}
	c, err := l.prepare(ctx, applied, by, o)
	if err != nil {
		return nil, err
	}
	if err := l.applyCommit(ctx, c, o); err != nil {
		return c, err
	}
	return c, execute.Unfinished(l.execution(), c, o)
}

// renderWaiting renders the commit that waits, for what is to be committed on top
// of it. The cluster is not asked for the scope of its kinds: they may be among
// what is waited for.
func (l *look) renderWaiting(ctx context.Context, s *repository.Snapshot, by signers.Policy) (*changeset.Changes, error) {
	r := &desired.Reader{
		Snapshot: s, Source: l.gs, Bases: l.rendering.Bases(ctx, l.since), Folders: l.rendering.Folders(),
		Brought: map[string]signers.FileOrigin{}, Changes: l.keep.changes, Signatures: by,
	}
	d, rendered, err := r.Read(nil)
	metrics.Rendered(l.name, rendered)
	return &changeset.Changes{Desired: d, Reader: r}, err
}

// putAside takes what went wrong beside the wait into the outcome, with what it is
// about. It returns what ends the sync.
func (l *look) putAside(err error, about string) error {
	if err == nil || l.rendering.Busy() != nil || repository.IsDamaged(err) || isConflict(err) || errors.Is(err, context.Canceled) {
		return err
	}
	for _, p := range apiproblem.OfSource(l.gs, err) {
		said := *p
		if about != "" {
			said.Where = about + ": " + p.Where
		}
		l.outcome.MaintenanceErrors = append(l.outcome.MaintenanceErrors, &said)
	}
	return nil
}

// awaiting is when to sync next while other sources are waited for.
func (l *look) awaiting() time.Duration {
	l.keep.awaiting = sharedFor(l.gs.Spec.IntervalOrDefault())
	if l.kept {
		l.keep.interim = interim{due: time.Now().Add(l.outcome.Next(l.gs)), intents: l.outcome.Intents, amiss: l.outcome.MaintenanceErrors}
	}
	l.remember(l.name, l.keep)
	return max(outcome.AtOnce, time.Until(l.keep.interim.due))
}
