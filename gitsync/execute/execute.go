package execute

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/apply/stage"
	"github.com/tranche-dev/tranche/gitsync/changeset"
	"github.com/tranche-dev/tranche/gitsync/departed"
	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/namedsecrets"
	"github.com/tranche-dev/tranche/gitsync/outcome"
	"github.com/tranche-dev/tranche/gitsync/replay"
	"github.com/tranche-dev/tranche/gitsync/report"
	"github.com/tranche-dev/tranche/gitsync/requests"
	"github.com/tranche-dev/tranche/gitsync/siblings"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Input is a GitSource, and how to write what it says.
type Input struct {
	// Source is the GitSource. Its status is changed, and Report writes it.
	Source *v1alpha1.GitSource
	Report *report.Writer
	// Account writes as the account of the source, Client as the controller. Own reads past the
	// cache.
	Account, Client client.Client
	Own             client.Reader
	// Cache is of earlier syncs, and added to.
	Cache *Cache
	// Branch and Tip are what the sync is about, see [stage.Input].
	Branch, Tip string
	// Ending: the GitSource is deleted.
	Ending bool
	Log    logr.Logger
}

// Cache is what is kept of a source between syncs. Losing it costs requests.
type Cache struct {
	DryRuns stage.DryRunCache
	// Contests are the objects with drift, by entry.
	Contests stage.Contests
	// Autoscaled is what of all that was applied last had an autoscaler.
	Autoscaled map[string]bool
}

// Revalidate drops the dry runs that no longer count for a source.
func (c *Cache) Revalidate(gs *v1alpha1.GitSource) {
	c.DryRuns = c.DryRuns.Valid(gs, requests.IsAsked(gs))
}

// Result is what is left to be done.
type Result struct {
	// Waiting are the Deployments whose hand-back is waited for.
	Waiting []client.ObjectKey
	// Contested is when drift is to be reverted that stays until then; zero: none does.
	Contested time.Time
	// Ignored is drift that comes again, and what admission makes of an apply.
	Ignored plan.Problems
	// Again: an object has changed since it was read, or Git sets again what an autoscaler had.
	Again bool
	// Unclear: objects are kept until another source renders.
	Unclear bool
	// Applied is what an event says of the commit; empty: it was applied before.
	Applied string
}

// of returns a result of a stage.
func of(r stage.Result) Result {
	return Result{Waiting: r.Waiting, Contested: r.Due, Again: r.Conflicted}
}

// stage returns the stage that applies a commit.
func (in *Input) stage(c *changeset.Changes, o *apply.Observer) *stage.Stage {
	if in.Cache.Contests == nil {
		in.Cache.Contests = stage.Contests{}
	}
	return stage.New(stage.Input{
		Applier: &apply.Applier{Source: in.Source, Client: in.Account, Commit: c.Desired.Commit}, Observer: o, Status: in.Client,
		Set: c.Governed.Set, Targets: c.Targets, Releases: c.Releases, Then: c.Then, Governing: c.Now,
		Before: in.Report.Written().Inventory, Autoscaled: in.Cache.Autoscaled, Asked: requests.IsAsked(in.Source),
		Branch: in.Branch, Tip: in.Tip, Cache: in.Cache.DryRuns, Contests: in.Cache.Contests, Log: in.Log,
		Record: func(e stage.Event) {
			in.Report.RecordEvent(report.Event{Of: e.Object, Type: e.Type, Reason: e.Reason, Message: e.Message, Commit: in.Tip})
		},
		BeforeEnd: func(ctx context.Context, e inventory.Entry) error { return in.recordEnded(ctx, e) },
	})
}

// Commit checks all of a commit, and then writes what of it the cluster does not have, and
// prunes. The result counts also where there is an error. [Unfinished] returns an error for
// objects that could not be created again.
func Commit(ctx context.Context, in Input, c *changeset.Changes, o *apply.Observer) (Result, error) {
	if err := in.stage(c, o).DryRun(ctx); err != nil {
		return Result{}, err
	}
	if err := namedsecrets.Check(ctx, in.Client, in.Source, c.Targets); err != nil {
		return Result{}, err
	}
	before := in.Source.Status.DeepCopy()
	if err := in.recordInventory(ctx, c); err != nil {
		return Result{}, err
	}
	s := in.stage(c, o)
	applied, err := s.Apply(ctx) // its inputs are those after the inventory is recorded
	if applied.Refused {
		if err := in.takeBack(ctx, before); err != nil {
			return of(applied), err
		}
	}
	result := of(applied)
	for _, e := range applied.Staying {
		c.Wanted.Add(e)
	}
	for _, e := range applied.Replaced {
		c.Replaced.Add(e)
	}
	if err != nil {
		return result, err
	}
	in.Cache.Contests, result.Ignored = in.Cache.Contests.Going(c.All(), time.Now())
	for _, t := range c.All() {
		if p := t.Resized(); p != nil {
			result.Ignored = append(result.Ignored, p)
		}
	}
	if len(result.Waiting) > 0 {
		return result, nil // the old inventory stays in force until all is applied
	}
	err = in.pruneAndRecord(ctx, c, s.Unfinished() == nil, &result)
	return result, err
}

// Unfinished returns why objects of a commit are still to be created again; nil: none are.
func Unfinished(in Input, c *changeset.Changes, o *apply.Observer) error {
	return in.stage(c, o).Unfinished()
}

// Refused writes what counts of a commit that is refused. It returns the BatchReleases that wait
// for the commit.
func Refused(ctx context.Context, in Input, c *changeset.Changes, o *apply.Observer) ([]string, Result, plan.Problems) {
	waiting, result, ps := in.stage(c, o).MoveOn(ctx)
	return waiting, of(result), ps
}

// Restore brings again what was deleted or changed of a commit that was applied. The refused
// commit is nil where it does not render.
func Restore(ctx context.Context, in Input, applied, refused *changeset.Changes, o *apply.Observer) (Result, plan.Problems, error) {
	// A Secret that a GitSource names by now stays as it is. It is in the message where the
	// commit is refused for it; the branch need not have it any more.
	if err := namedsecrets.Check(ctx, in.Client, in.Source, applied.Targets); err != nil && len(plan.ProblemsOf(err)) == 0 {
		return Result{}, nil, err
	}
	result, ps := in.stage(applied, o).Restore(ctx, in.refused(refused, o))
	return of(result), ps, nil
}

// Gone returns what of a refused commit is deleted and not restored. The commit is nil where
// it does not render.
func Gone(in Input, refused *changeset.Changes, o *apply.Observer) plan.Problems {
	return in.refused(refused, o).Gone()
}

func (in *Input) refused(c *changeset.Changes, o *apply.Observer) *stage.Stage {
	if c == nil {
		return nil
	}
	return in.stage(c, o)
}

// recordInventory writes the inventory of what is about to be applied together with
// that of what was: whatever happens from here on, nothing is lost.
func (in *Input) recordInventory(ctx context.Context, c *changeset.Changes) error {
	status, written := &in.Source.Status, in.Report.Written()
	if len(inventory.Read(written.Inventory)) == 0 {
		status.AppliedFrom = in.Source.Spec.Place()
	}
	status.Inventory = c.Wanted.Union(inventory.Read(written.Inventory)).Status()
	status.Plans = slices.Concat(c.Governed.Plans, c.Governed.Ending)
	replay.UsePlanApprovals(status, time.Now(), c.Governed.Used)
	if apply.IsApplied(in.Source, c.Desired.Commit) {
		if in.Report.OnlyCommitsDiffer() {
			return nil // they are written with the end of the sync
		}
		return in.Report.Save(ctx)
	}
	status.AppliedWith = ""
	if c.Desired.Commit == written.ObservedCommit {
		return in.Report.Save(ctx)
	}
	status.ObservedCommit = c.Desired.Commit
	return in.Report.Report(ctx, &outcome.Outcome{Branch: in.Branch, Commit: in.Tip, Applying: true})
}

// takeBack makes the status what it was before the inventory of a commit was recorded. Nothing of
// the commit is in the cluster.
func (in *Input) takeBack(ctx context.Context, before *v1alpha1.GitSourceStatus) error {
	before.Conditions = in.Source.Status.Conditions
	in.Source.Status = *before
	return in.Report.Save(ctx)
}

// pruneAndRecord prunes, once everything is applied, and records it. whole is false if objects
// are still to be created again.
func (in *Input) pruneAndRecord(ctx context.Context, c *changeset.Changes, whole bool, result *Result) error {
	status := &in.Source.Status
	gone := inventory.Read(status.Inventory).Union(c.Replaced).Without(c.Wanted)
	pruned, err := in.prune(ctx, gone, c.Heirs)
	result.Unclear, result.Again = pruned.Unclear, result.Again || pruned.AutoscalerGone
	status.Inventory = c.Wanted.Union(pruned.Kept).Status()
	if err != nil {
		return err
	}
	status.Plans, status.AppliedFrom = c.Governed.Plans, in.Source.Spec.Place()
	replay.UsePlanApprovals(status, time.Now(), c.Governed.UsedInTheEnd)
	in.Cache.Autoscaled = map[string]bool{}
	for _, t := range c.Targets {
		if t.Autoscaled {
			in.Cache.Autoscaled[t.Entry().ID()] = true
		}
	}
	if !whole {
		return nil
	}
	status.AppliedWith = apply.Digest(&in.Source.Spec)
	if status.AppliedCommit != c.Desired.Commit {
		status.AppliedCommit = c.Desired.Commit
		result.Applied = fmt.Sprintf("applied %s: %d objects", desired.CommitName(in.Branch, c.Desired.Commit), len(c.Wanted))
	}
	return nil
}

// Prune deletes what left the branch, as the source says. The rest is its inventory from then
// on.
func Prune(ctx context.Context, in Input, gone []inventory.Entry) (Result, error) {
	pruned, err := in.prune(ctx, gone, nil)
	in.Source.Status.Inventory = pruned.Kept.Status()
	return Result{Unclear: pruned.Unclear, Again: pruned.AutoscalerGone}, err
}

func (in *Input) prune(ctx context.Context, gone []inventory.Entry, heirs siblings.Heirs) (departed.Result, error) {
	return departed.Run(ctx, departed.Input{
		Source: in.Source, Account: in.Account, Own: in.Own, Heirs: heirs, Ending: in.Ending, BeforeEnd: in.recordEnded,
		Record: func(about runtime.Object, reason, message string) {
			in.Report.RecordEvent(report.Event{
				Of: about, Type: corev1.EventTypeNormal, Reason: reason, Message: message, Commit: in.Tip,
			})
		},
	}, gone)
}

// recordEnded writes the names of the releases of plans into the status of the GitSource, before
// the plans are deleted.
func (in *Input) recordEnded(ctx context.Context, plans ...inventory.Entry) error {
	if in.Ending {
		return nil
	}
	if err := departed.AddReleases(ctx, in.Own, in.Source, plans...); err != nil {
		return err
	}
	return in.Report.Save(ctx)
}
