package gitsync

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/changeset"
	"github.com/tranche-dev/tranche/gitsync/credentials"
	"github.com/tranche-dev/tranche/gitsync/departed"
	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/execute"
	"github.com/tranche-dev/tranche/gitsync/footprint"
	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/metrics"
	"github.com/tranche-dev/tranche/gitsync/outcome"
	"github.com/tranche-dev/tranche/gitsync/prune"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/requests"
	"github.com/tranche-dev/tranche/gitsync/signers"
	"github.com/tranche-dev/tranche/gitsync/terms"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// follow brings the cluster to what a snapshot says: everything is rendered,
// read and tried before the first write.
func (l *look) follow(ctx context.Context, r gitserver.Remote, s *repository.Snapshot) (step, error) {
	// Also where nothing of the commit is tried: what was applied is kept.
	l.keep.executed.DryRuns = l.keep.executed.DryRuns.Valid(l.gs, requests.IsAsked(l.gs))
	by, err := l.signatures(ctx)
	if err != nil {
		return step{}, err
	}
	if err := credentials.Verify(ctx, l.gs, s, by); err != nil {
		return step{}, l.refuse(ctx, s, by, nil, err)
	}
	if err := l.await(ctx, s); err != nil {
		return step{}, err
	}
	if len(l.outcome.Awaited) > 0 {
		return l.meanwhile(ctx, r, s, by)
	}
	o := apply.NewObserver(l.gs, l.as, l.own)
	o.First = apply.FirstOf(&l.gs.Status, l.shared, l.since)
	c, err := l.prepare(ctx, s, by, o)
	if err == nil {
		err = l.applyCommit(ctx, c, o)
	}
	if err != nil {
		return l.writeBackRefused(ctx, r, s, c, o, l.refuse(ctx, s, by, c, err))
	}
	if len(l.outcome.Waiting) > 0 {
		return step{}, nil
	}
	if l.outcome.Contested.IsZero() { // else drift stays for a while
		l.footprint = footprint.Of(c.Governed.Set, o, c.All()...)
	}
	l.readyOf(c)
	if next, err := l.writeBack(ctx, r, s, c, o, false); err != nil || next.moved {
		return next, err
	}
	if next, err := l.writeNotes(ctx, r, s, c, o); err != nil || next.moved {
		return next, err
	}
	return step{}, execute.Unfinished(l.execution(), c, o)
}

// applyCommit tries all of a commit, applies it, and prunes.
func (l *look) applyCommit(ctx context.Context, c *changeset.Changes, o *apply.Observer) error {
	result, err := execute.Commit(ctx, l.execution(), c, o)
	l.take(result)
	return err
}

// execution is how the sync applies commits.
func (l *look) execution() execute.Input {
	return execute.Input{
		Source: l.gs, Report: l.report, Account: l.as, Client: l.status, Own: l.own, Cache: &l.keep.executed,
		Branch: l.outcome.Branch, Tip: l.outcome.Commit, Ending: l.outcome.Ending, Log: l.log,
	}
}

// take puts what is left to be done to the outcome of the sync.
func (l *look) take(r execute.Result) {
	l.outcome.Waiting = append(l.outcome.Waiting, r.Waiting...)
	l.outcome.Ignored = append(l.outcome.Ignored, r.Ignored...)
	if due := r.Contested; !due.IsZero() && (l.outcome.Contested.IsZero() || due.Before(l.outcome.Contested)) {
		l.outcome.Contested = due
	}
	l.again, l.unclear = l.again || r.Again, r.Unclear
}

// prepare renders a commit and reads the cluster's side of it. If there are problems,
// it returns the changes with them, unless the commit does not render.
func (l *look) prepare(
	ctx context.Context, s *repository.Snapshot, by signers.Policy, o *apply.Observer,
) (*changeset.Changes, error) {
	r := l.reader(ctx, s, by)
	d, rendered, err := r.Read(l.keep.desired)
	if err != nil {
		return nil, err
	}
	l.keep.desired = d
	metrics.Rendered(l.name, rendered)
	l.log.V(1).Info("desired", "commit", d.Commit, "rendered", rendered, "objects", len(d.Set.Objects), "releases", len(d.Set.Releases))
	if err := prune.RefuseEmpty(l.gs, d.Set); err != nil {
		return nil, err
	}
	if err := l.unaffected.Advance(l.log, s, l.gs, d); err != nil {
		return nil, err
	}
	governed, err := terms.Govern(ctx, r, d, o)
	if err != nil {
		return nil, err
	}
	l.keep.applied = governed.Set
	c, err := changeset.Prepare(ctx, changeset.Input{
		Source: l.gs, Desired: d, Reader: r, Governed: governed, Observer: o, Own: l.own,
		Siblings: l.siblings(ctx), Selector: l.options.Selector,
	})
	if c != nil {
		l.approvals, l.outcome.Ignored, l.outcome.Withheld = r.Approvals, c.Ignored, c.Withheld
	}
	return c, err
}

// reader returns what renders a commit of the source.
func (l *look) reader(ctx context.Context, s *repository.Snapshot, by signers.Policy) *desired.Reader {
	if l.keep.brought == nil {
		l.keep.brought = map[string]signers.FileOrigin{}
	}
	if l.keep.approved == nil {
		l.keep.approved = desired.ApprovedSteps{}
	}
	if l.keep.exceeded == nil {
		l.keep.exceeded = &desired.ExceededCommits{}
	}
	return &desired.Reader{
		Snapshot: s, Source: l.gs, Mapper: l.mapper, Bases: l.rendering.Bases(ctx, l.since), Folders: l.rendering.Folders(),
		Brought: l.keep.brought, Approved: l.keep.approved, Order: l.keep.order, Changes: l.keep.changes, Exceeded: l.keep.exceeded,
		Signatures: by,
	}
}

// usedFor is how long ConfigMaps and Secrets of a deleted GitSource wait for the pods
// that refer to them to go. The options can say otherwise.
const usedFor = time.Minute

// end prunes all that a GitSource has applied when it is deleted, or only the
// plans, as it says, and lets it go.
func (l *look) end(ctx context.Context) error {
	if !controllerutil.ContainsFinalizer(l.gs, finalizer) {
		l.forget(l.name)
		return nil
	}
	uninstalled, err := departed.IsUninstalled(ctx, l.own)
	if err != nil {
		return l.conclude(ctx, err)
	}
	if uninstalled {
		l.recordEvent(corev1.EventTypeWarning, v1alpha1.ReasonOrphaned,
			"the GitSource goes with its CRD, and what it applied stays in the cluster: delete the GitSource itself to prune")
		l.gs.Status.Kept = nil
	}
	if !l.gs.Spec.Suspend && !uninstalled {
		err := l.pruneAll(ctx)
		patience := cmp.Or(l.options.UsedFor, usedFor)
		if waits := l.gs.Status.Inventory != nil && time.Since(l.gs.DeletionTimestamp.Time) < patience; err != nil || waits {
			l.again = err == nil
			if waits {
				l.outcome.InUse = fmt.Sprintf("; waiting, for %s at most, for who uses %s", patience, plan.JoinNames(departed.InUse(l.gs.Status.Kept)))
			}
			return l.conclude(ctx, err)
		}
	}
	if kept := departed.InUse(l.gs.Status.Kept); len(kept) > 0 {
		l.recordEvent(corev1.EventTypeWarning, v1alpha1.ReasonOrphaned,
			"the GitSource is deleted, and in the cluster stays what is in use: "+plan.JoinNames(kept))
	}
	old := l.gs.DeepCopy()
	controllerutil.RemoveFinalizer(l.gs, finalizer)
	patch := client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})
	err = l.status.Patch(ctx, l.gs, patch, client.FieldOwner(v1alpha1.ManagerGitSync))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the finalizer of GitSource %s: %w", l.name, err)
	}
	l.forget(l.name)
	return nil
}

// pruneAll deletes everything in the inventory.
func (l *look) pruneAll(ctx context.Context) error {
	l.outcome = outcome.Outcome{Branch: l.gs.Spec.Ref.String(), Commit: l.gs.Status.ObservedCommit, Ending: true}
	var err error
	if l.as, err = l.clients.As(l.gs.Namespace, l.gs.Spec.ServiceAccountName); err != nil {
		return err
	}
	result, err := execute.Prune(ctx, l.execution(), inventory.Read(l.gs.Status.Inventory).Without(inventory.Set{}))
	l.take(result)
	for _, p := range plan.ProblemsOf(err) {
		const way = "to let the GitSource go and leave the rest in the cluster, set spec.suspend to true"
		p.Hint = strings.TrimPrefix(p.Hint+"; "+way, "; ")
	}
	return err
}

// noteEndedAnyway adds the ended releases of all plans where a commit was refused:
// releases of an older one go on and end meanwhile. The status is written with the
// refusal.
func (l *look) noteEndedAnyway(ctx context.Context) {
	if err := departed.AddEnded(ctx, l.own, l.gs); err != nil {
		l.log.Info("not noted which releases have ended", "because", err.Error())
	}
}
