package gitsync

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/tranche-dev/tranche/gitsync/apiproblem"
	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/credentials"
	"github.com/tranche-dev/tranche/gitsync/departed"
	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/fieldmanager"
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
	"github.com/tranche-dev/tranche/gitsync/takeover"
	"github.com/tranche-dev/tranche/gitsync/terms"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// commit is what is to be done for one commit.
type commit struct {
	desired  *desired.State
	renderer *desired.Reader
	// governed is what of it counts, and is applied.
	governed *terms.Governed
	targets  []*apply.Target
	releases []*apply.Target
	wanted   inventory.Set
	heirs    siblings.Heirs
	// replaced are the BatchReleases that others have taken over from.
	replaced inventory.Set
	// then are the BatchReleases of releases as the commit has them, and now, by name,
	// those of the cluster that they take the place of.
	then []*v1alpha1.BatchRelease
	now  map[string]*v1alpha1.BatchRelease
}

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
		l.footprint = footprint.Of(c.governed.Set, o, slices.Concat(c.targets, c.releases)...)
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
func (l *look) bring(ctx context.Context, c *commit, o *apply.Observer) error {
	if err := l.stage(c, o).DryRun(ctx); err != nil {
		return err
	}
	if err := namedsecrets.Check(ctx, l.status, l.gs, c.targets); err != nil {
		return err
	}
	if err := l.announce(ctx, c); err != nil {
		return err
	}
	s := l.stage(c, o)
	result, err := s.Apply(ctx) // its inputs are those after the announcement
	l.take(result)
	for _, e := range result.Staying {
		c.wanted.Add(e)
	}
	for _, e := range result.Replaced {
		c.replaced.Add(e)
	}
	if err != nil {
		return err
	}
	contests, going := l.keep.contests.Going(slices.Concat(c.targets, c.releases), time.Now())
	l.keep.contests, l.outcome.Ignored = contests, append(l.outcome.Ignored, going...)
	return l.finish(ctx, c, s.Unfinished() == nil)
}

// stage returns the stage that applies a commit.
func (l *look) stage(c *commit, o *apply.Observer) *apply.Stage {
	if l.keep.contests == nil {
		l.keep.contests = apply.Contests{}
	}
	return apply.NewStage(apply.Input{
		Applier: &apply.Applier{Source: l.gs, Client: l.as, Commit: c.desired.Commit}, Observer: o, Status: l.status,
		Set: c.governed.Set, Targets: c.targets, Releases: c.releases, Then: c.then, Governing: c.now,
		Before: l.before.Inventory, Autoscaled: l.keep.autoscaled, Asked: requests.IsAsked(l.gs), Branch: l.outcome.Branch, Tip: l.outcome.Commit,
		Cache: l.keep.trials, Contests: l.keep.contests, Log: l.log,
		Record:    func(e apply.Event) { l.tellOf(e.Object, e.Type, e.Reason, e.Message) },
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
// it returns the commit with them, unless the commit does not render.
func (l *look) prepare(ctx context.Context, s *repository.Snapshot, by signers.Policy, o *apply.Observer) (*commit, error) {
	if l.keep.brought == nil {
		l.keep.brought = map[string]signers.FileOrigin{}
	}
	if l.keep.approved == nil {
		l.keep.approved = desired.ApprovedSteps{}
	}
	if l.keep.exceeded == nil {
		l.keep.exceeded = &desired.ExceededCommits{}
	}
	r := &desired.Reader{Exceeded: l.keep.exceeded, Snapshot: s, Source: l.gs, Mapper: l.mapper, Bases: l.rendering.Bases(ctx, l.since), Folders: l.rendering.Folders(), Brought: l.keep.brought, Approved: l.keep.approved, Order: l.keep.order, Changes: l.keep.changes, Signatures: by}
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
	c := &commit{desired: d, renderer: r, wanted: inventory.Set{}, replaced: inventory.Set{}}
	if c.governed, err = terms.Govern(ctx, r, d, o); err != nil {
		return nil, err
	}
	l.keep.applied = c.governed.Set
	var refused error
	if c.targets, refused = o.Targets(ctx, c.governed.Set); refused != nil && len(plan.ProblemsOf(refused)) == 0 {
		return nil, refused
	}
	c.releases, err = l.releases(ctx, c, o)
	if err != nil && (c.releases == nil || len(plan.ProblemsOf(err)) == 0) {
		return nil, err
	}
	l.leaveAlone(c)
	if ps := slices.Concat(plan.ProblemsOf(refused), plan.ProblemsOf(err)); len(ps) > 0 {
		return c, ps
	}
	c.wanted = c.governed.Keeps.Union(c.wanted)
	for _, t := range slices.Concat(c.targets, c.releases) {
		c.wanted.Add(t.Entry())
	}
	if c.heirs, err = l.siblings(ctx).HeirsOf(ctx, l.gs, s, c.wanted); err != nil {
		return nil, err
	}
	return c, prune.CheckLimit(l.gs, inventory.Read(l.gs.Status.Inventory), c.heirs.Certain().Union(c.wanted), d.Commit)
}

// leaveAlone leaves the plans alone of Deployments that are left alone: a new template in
// the plan would be released. A plan may be left alone itself. Those of which Git says
// something else are named, in place of why approvals of them do not count. Such
// approvals are compared with the release that Git has, which is not under way.
func (l *look) leaveAlone(c *commit) {
	workloads := map[string]*apply.Target{} // by release
	for _, t := range c.targets {
		if t.Release != nil && t.Mode == apply.Skip {
			workloads[plan.ReleaseName(t.Release.Plan)] = t
		}
	}
	var differ plan.Problems
	for _, r := range c.releases {
		name := r.GetNamespace() + "/" + r.GetName()
		t := workloads[name]
		switch {
		case t != nil:
			r.Mode = apply.Skip
		case r.Mode == apply.Skip:
			t = r
		default:
			continue
		}
		if r.Live == nil && t != r || r.Live != nil && fieldmanager.Contains(r.Live.Object["spec"], r.Unstructured.Object["spec"]) {
			continue
		}
		differ = append(differ, t.Problem(v1alpha1.ReasonLeftAlone,
			"what Git says of its release, approvals included, is not applied: annotation "+v1alpha1.AnnotationReconcile+" is "+v1alpha1.AnnotationReconcileDisabled,
			"take the annotation off in Git and in the cluster"))
		untrue := c.renderer.Ignored[name]
		l.outcome.Ignored = slices.DeleteFunc(l.outcome.Ignored, func(p *plan.Problem) bool { return slices.Contains(untrue, p) })
	}
	l.outcome.Ignored = append(differ, l.outcome.Ignored...)
}

// releases are the BatchReleases to apply, as targets.
func (l *look) releases(ctx context.Context, c *commit, o *apply.Observer) ([]*apply.Target, error) {
	live, set := map[string]*v1alpha1.BatchRelease{}, c.governed.Set
	var ours []*v1alpha1.BatchRelease
	for i := range set.Releases {
		release := &set.Releases[i]
		now, err := o.PlanOf(ctx, set, release)
		if err != nil {
			return nil, err
		}
		if now != nil {
			live[plan.ReleaseName(release.Plan)] = takeover.Unclaimed(now)
		}
		if now != nil && inventory.IsOwned(now, l.gs) {
			ours = append(ours, now)
		}
	}
	replay.AddEnded(&l.gs.Status, time.Now(), ours...)
	var err error
	if c.renderer.Failed, err = takeover.FailedReleases(ctx, l.own, set.Releases, live); err != nil {
		return nil, err
	}
	c.renderer.Sources = func() (*v1alpha1.GitSourceList, error) {
		err := o.ReadSources(ctx)
		return o.Sources, err
	}
	list, ignored, err := c.renderer.Releases(ctx, c.desired, set.Releases, live)
	if err != nil {
		return nil, err
	}
	l.approvals = c.renderer.Approvals
	shard(l.options.Selector, l.gs, list)
	l.outcome.Ignored = slices.Concat(c.governed.Unapproved, ignored)
	l.outcome.Withheld = c.governed.Withheld
	c.then, c.now = list, live
	var targets []*apply.Target
	var ps plan.Problems
	for i, br := range list {
		object, err := apply.ReleaseObject(br, set.Releases[i].File)
		if err != nil {
			return nil, err
		}
		t := &apply.Target{Object: object, Deferred: o.Prerequisites[br.Namespace], NamespacePending: o.Prerequisites[br.Namespace]}
		if err := o.Observe(ctx, t); err != nil {
			problems := apiproblem.Of(v1alpha1.ReasonDryRunFailed, object, l.gs, err)
			if len(problems) == 0 {
				return nil, err
			}
			t.Refused, ps = true, append(ps, problems...)
		} else if err := takeover.AsJudged(br, live[plan.ReleaseName(br)], t.Live); err != nil {
			return nil, err
		}
		targets = append(targets, t)
	}
	if len(ps) > 0 {
		return targets, ps
	}
	return targets, l.tellRivals(ctx, o, targets, set.Releases)
}

// announce writes the inventory of what is about to be applied together with
// that of what was: whatever happens from here on, nothing is lost.
func (l *look) announce(ctx context.Context, c *commit) error {
	l.gs.Status.Inventory = c.wanted.Union(inventory.Read(l.before.Inventory)).Status()
	l.gs.Status.Plans = slices.Concat(c.governed.Plans, c.governed.Ending)
	replay.UsePlanApprovals(&l.gs.Status, time.Now(), c.governed.Used)
	if apply.IsApplied(l.gs, c.desired.Commit) {
		if l.onlyCommitsDiffer() {
			return nil // they are written with the end of the sync
		}
		return l.save(ctx)
	}
	l.gs.Status.AppliedWith = ""
	if c.desired.Commit == l.before.ObservedCommit {
		return l.save(ctx)
	}
	l.gs.Status.ObservedCommit = c.desired.Commit
	l.outcome.Applying = true
	err := l.report(ctx)
	l.outcome.Applying = false
	return err
}

// finish prunes, once everything is applied, and says so. whole is false if objects are still
// to be created again.
func (l *look) finish(ctx context.Context, c *commit, whole bool) error {
	if len(l.outcome.Waiting) > 0 {
		return nil // the old inventory stays in force until all is applied
	}
	gone := inventory.Read(l.gs.Status.Inventory).Union(c.replaced).Without(c.wanted)
	kept, err := l.prune(ctx, gone, c.heirs)
	l.gs.Status.Inventory = c.wanted.Union(kept).Status()
	if err != nil {
		return err
	}
	l.gs.Status.Plans = c.governed.Plans
	replay.UsePlanApprovals(&l.gs.Status, time.Now(), c.governed.UsedInTheEnd)
	l.keep.autoscaled = map[string]bool{}
	for _, t := range c.targets {
		if t.Autoscaled {
			l.keep.autoscaled[t.Entry().ID()] = true
		}
	}
	if !whole {
		return nil
	}
	l.gs.Status.AppliedWith = apply.Digest(&l.gs.Spec)
	if l.gs.Status.AppliedCommit != c.desired.Commit {
		l.gs.Status.AppliedCommit = c.desired.Commit
		l.tell(corev1.EventTypeNormal, v1alpha1.ReasonApplied, fmt.Sprintf("applied %s: %d objects", desired.CommitName(l.outcome.Branch, c.desired.Commit), len(c.wanted)))
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
		l.tell(corev1.EventTypeWarning, v1alpha1.ReasonOrphaned, "the GitSource goes with its CRD, and what it applied stays in the cluster: delete the GitSource itself to prune")
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
		l.tell(corev1.EventTypeWarning, v1alpha1.ReasonOrphaned, "the GitSource is deleted, and in the cluster stays what is in use: "+plan.JoinNames(kept))
	}
	old := l.gs.DeepCopy()
	controllerutil.RemoveFinalizer(l.gs, finalizer)
	err = l.status.Patch(ctx, l.gs, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}), client.FieldOwner(v1alpha1.ManagerGitSync))
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
			l.tellOf(about, corev1.EventTypeNormal, reason, message)
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
	return l.save(ctx)
}

// noteEndedAnyway adds the ended releases of all plans where a commit was refused:
// releases of an older one go on and end meanwhile. The status is written with the
// refusal.
func (l *look) noteEndedAnyway(ctx context.Context) {
	if err := departed.AddEnded(ctx, l.own, l.gs); err != nil {
		l.log.Info("not noted which releases have ended", "because", err.Error())
	}
}

// shard gives releases the labels of their source by which controllers share
// the work, so that the same one looks at both.
func shard(selector labels.Selector, gs *v1alpha1.GitSource, releases []*v1alpha1.BatchRelease) {
	if selector == nil {
		return
	}
	requirements, _ := selector.Requirements()
	for _, br := range releases {
		marked := maps.Clone(br.Labels)
		if marked == nil {
			marked = map[string]string{}
		}
		for _, r := range requirements {
			if value, ok := gs.Labels[r.Key()]; ok {
				marked[r.Key()] = value
			} else {
				delete(marked, r.Key())
			}
		}
		br.Labels = marked
	}
}
