package gitsync

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/changeset"
	"github.com/tranche-dev/tranche/gitsync/credentials"
	"github.com/tranche-dev/tranche/gitsync/departed"
	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/footprint"
	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/metrics"
	"github.com/tranche-dev/tranche/gitsync/namedsecrets"
	"github.com/tranche-dev/tranche/gitsync/outcome"
	"github.com/tranche-dev/tranche/gitsync/prune"
	"github.com/tranche-dev/tranche/gitsync/replay"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/requests"
	"github.com/tranche-dev/tranche/gitsync/siblings"
	"github.com/tranche-dev/tranche/gitsync/signers"
	"github.com/tranche-dev/tranche/gitsync/terms"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// follow brings the cluster to what a snapshot says: everything is rendered,
// read and tried before the first write.
func (l *look) follow(ctx context.Context, r gitserver.Remote, s *repository.Snapshot) (step, error) {
	l.keep.trials = l.keep.trials.Valid(l.gs, requests.IsAsked(l.gs)) // also where nothing of the commit is tried: what was applied is kept
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
		err = l.bring(ctx, c, o)
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
	return step{}, l.stage(c, o).Unfinished()
}

// bring tries all of a commit, and then writes what of it the cluster does not
// have, and prunes.
func (l *look) bring(ctx context.Context, c *changeset.Changes, o *apply.Observer) error {
	if err := l.stage(c, o).DryRun(ctx); err != nil {
		return err
	}
	if err := namedsecrets.Check(ctx, l.status, l.gs, c.Targets); err != nil {
		return err
	}
	if err := l.announce(ctx, c); err != nil {
		return err
	}
	s := l.stage(c, o)
	result, err := s.Apply(ctx) // its inputs are those after the announcement
	l.take(result)
	for _, e := range result.Staying {
		c.Wanted.Add(e)
	}
	for _, e := range result.Replaced {
		c.Replaced.Add(e)
	}
	if err != nil {
		return err
	}
	contests, going := l.keep.contests.Going(c.All(), time.Now())
	l.keep.contests, l.outcome.Ignored = contests, append(l.outcome.Ignored, going...)
	return l.finish(ctx, c, s.Unfinished() == nil)
}

// stage returns the stage that applies a commit.
func (l *look) stage(c *changeset.Changes, o *apply.Observer) *apply.Stage {
	if l.keep.contests == nil {
		l.keep.contests = apply.Contests{}
	}
	return apply.NewStage(apply.Input{
		Applier: &apply.Applier{Source: l.gs, Client: l.as, Commit: c.Desired.Commit}, Observer: o, Status: l.status,
		Set: c.Governed.Set, Targets: c.Targets, Releases: c.Releases, Then: c.Then, Governing: c.Now,
		Before: l.report.Written().Inventory, Autoscaled: l.keep.autoscaled, Asked: requests.IsAsked(l.gs),
		Branch: l.outcome.Branch, Tip: l.outcome.Commit,
		Cache: l.keep.trials, Contests: l.keep.contests, Log: l.log,
		Record:    func(e apply.Event) { l.recordEventOf(e.Object, e.Type, e.Reason, e.Message) },
		BeforeEnd: func(ctx context.Context, e inventory.Entry) error { return l.noteEnded(ctx, e) },
	})
}

// take puts what a stage leaves to be done to the outcome of the sync.
func (l *look) take(r apply.Result) {
	l.outcome.Waiting = append(l.outcome.Waiting, r.Waiting...)
	if due := r.Due; !due.IsZero() && (l.outcome.Contested.IsZero() || due.Before(l.outcome.Contested)) {
		l.outcome.Contested = due
	}
	l.again = l.again || r.Conflicted
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

// announce writes the inventory of what is about to be applied together with
// that of what was: whatever happens from here on, nothing is lost.
func (l *look) announce(ctx context.Context, c *changeset.Changes) error {
	l.gs.Status.Inventory = c.Wanted.Union(inventory.Read(l.report.Written().Inventory)).Status()
	l.gs.Status.Plans = slices.Concat(c.Governed.Plans, c.Governed.Ending)
	replay.UsePlanApprovals(&l.gs.Status, time.Now(), c.Governed.Used)
	if apply.IsApplied(l.gs, c.Desired.Commit) {
		if l.report.OnlyCommitsDiffer() {
			return nil // they are written with the end of the sync
		}
		return l.report.Save(ctx)
	}
	l.gs.Status.AppliedWith = ""
	if c.Desired.Commit == l.report.Written().ObservedCommit {
		return l.report.Save(ctx)
	}
	l.gs.Status.ObservedCommit = c.Desired.Commit
	l.outcome.Applying = true
	err := l.report.Report(ctx, &l.outcome)
	l.outcome.Applying = false
	return err
}

// finish prunes, once everything is applied, and says so. whole is false if objects are still
// to be created again.
func (l *look) finish(ctx context.Context, c *changeset.Changes, whole bool) error {
	if len(l.outcome.Waiting) > 0 {
		return nil // the old inventory stays in force until all is applied
	}
	gone := inventory.Read(l.gs.Status.Inventory).Union(c.Replaced).Without(c.Wanted)
	kept, err := l.prune(ctx, gone, c.Heirs)
	l.gs.Status.Inventory = c.Wanted.Union(kept).Status()
	if err != nil {
		return err
	}
	l.gs.Status.Plans = c.Governed.Plans
	replay.UsePlanApprovals(&l.gs.Status, time.Now(), c.Governed.UsedInTheEnd)
	l.keep.autoscaled = map[string]bool{}
	for _, t := range c.Targets {
		if t.Autoscaled {
			l.keep.autoscaled[t.Entry().ID()] = true
		}
	}
	if !whole {
		return nil
	}
	l.gs.Status.AppliedWith = apply.Digest(&l.gs.Spec)
	if l.gs.Status.AppliedCommit != c.Desired.Commit {
		l.gs.Status.AppliedCommit = c.Desired.Commit
		name := desired.CommitName(l.outcome.Branch, c.Desired.Commit)
		l.recordEvent(corev1.EventTypeNormal, v1alpha1.ReasonApplied, fmt.Sprintf("applied %s: %d objects", name, len(c.Wanted)))
	}
	return nil
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
	kept, err := l.prune(ctx, inventory.Read(l.gs.Status.Inventory).Without(inventory.Set{}), nil)
	l.gs.Status.Inventory = kept.Status()
	for _, p := range plan.ProblemsOf(err) {
		const way = "to let the GitSource go and leave the rest in the cluster, set spec.suspend to true"
		p.Hint = strings.TrimPrefix(p.Hint+"; "+way, "; ")
	}
	return err
}

// prune deletes what left the branch, and returns what stays in the inventory.
func (l *look) prune(ctx context.Context, gone []inventory.Entry, h siblings.Heirs) (inventory.Set, error) {
	result, err := departed.Run(ctx, departed.Input{
		Source: l.gs, Account: l.as, Own: l.own, Heirs: h, Ending: l.outcome.Ending, BeforeEnd: l.noteEnded,
		Record: func(about runtime.Object, reason, message string) {
			l.recordEventOf(about, corev1.EventTypeNormal, reason, message)
		},
	}, gone)
	l.unclear, l.again = result.Unclear, l.again || result.AutoscalerGone
	return result.Kept, err
}

// noteEnded writes the names of the releases of plans into the status of the
// GitSource, before the plans are deleted.
func (l *look) noteEnded(ctx context.Context, plans ...inventory.Entry) error {
	if l.outcome.Ending {
		return nil
	}
	if err := departed.AddReleases(ctx, l.own, l.gs, plans...); err != nil {
		return err
	}
	return l.report.Save(ctx)
}

// noteEndedAnyway adds the ended releases of all plans where a commit was refused:
// releases of an older one go on and end meanwhile. The status is written with the
// refusal.
func (l *look) noteEndedAnyway(ctx context.Context) {
	if err := departed.AddEnded(ctx, l.own, l.gs); err != nil {
		l.log.Info("not noted which releases have ended", "because", err.Error())
	}
}
