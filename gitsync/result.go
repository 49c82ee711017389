package gitsync

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tranche-dev/tranche/gitsync/changeset"
	"github.com/tranche-dev/tranche/gitsync/execute"
	"github.com/tranche-dev/tranche/gitsync/footprint"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/outcome"
	"github.com/tranche-dev/tranche/gitsync/requests"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// result is what the steps of a sync have come to.
type result struct {
	outcome outcome.Outcome
	// approvals is what was read for the approvals.
	approvals gittree.Reads
	// footprint is what the cluster has of the commit; nil: it is to be read again.
	footprint *footprint.Footprint
	// again: sync again at once.
	again bool
	// unclear: objects are kept until another source renders.
	unclear bool
	// maintained: what is applied was synced though a newer commit waits.
	maintained bool
}

// prepared takes over what was found out of the changes of a commit; nil: nothing was. Partial
// changes do not know what the rest of the commit is for.
func (res *result) prepared(c *changeset.Changes) {
	if c != nil && !c.Partial {
		res.approvals, res.outcome.Ignored, res.outcome.Withheld = c.Reader.Approvals, c.Ignored, c.Withheld
	}
}

// applied notes what the cluster has of a commit that is applied, and what of it is not ready.
func (res *result) applied(gs *v1alpha1.GitSource, a attempt) {
	if res.outcome.Contested.IsZero() { // else drift stays for a while
		res.footprint = footprint.Of(a.changes.Governed.Set, a.observer, a.changes.All()...)
	}
	res.outcome.Unready = unready(gs, a.changes)
}

// add adds what an execution leaves to be done.
func (res *result) add(r execute.Result) {
	res.outcome.Waiting = append(res.outcome.Waiting, r.Waiting...)
	res.outcome.Ignored = append(res.outcome.Ignored, r.Ignored...)
	if r.Applied != "" {
		res.outcome.Applied = append(res.outcome.Applied, r.Applied)
	}
	if due := r.Contested; !due.IsZero() && (res.outcome.Contested.IsZero() || due.Before(res.outcome.Contested)) {
		res.outcome.Contested = due
	}
	res.again, res.unclear = res.again || r.Again, r.Unclear
}

// nextSync maps the end of a sync to the time of the next one.
func nextSync(src *source, res *result, err error) (reconcile.Result, error) {
	patience := outcome.Patience(src.gs, v1alpha1.ConditionReady, outcome.RetryWithin)
	switch {
	case isConflict(err):
		return reconcile.Result{RequeueAfter: outcome.AtOnce}, nil
	case err != nil:
		return reconcile.Result{}, err
	case src.rendering.Busy() != nil:
		return reconcile.Result{RequeueAfter: src.gs.Spec.IntervalOrDefault()}, nil // or once there is a place
	case res.again:
		return reconcile.Result{RequeueAfter: outcome.AtOnce}, nil
	case len(res.outcome.Problems) == 0 && len(res.outcome.Awaited) > 0:
		return reconcile.Result{RequeueAfter: min(awaitAgain(src, res), patience)}, nil
	case len(res.outcome.Waiting) > 0:
		return reconcile.Result{RequeueAfter: patience}, nil
	case src.gs.DeletionTimestamp != nil && len(res.outcome.Problems) > 0:
		return reconcile.Result{RequeueAfter: outcome.RetryWithin}, nil
	case src.gs.DeletionTimestamp != nil, res.outcome.Suspended:
		return reconcile.Result{}, nil
	}
	next := res.outcome.Next(src.gs)
	if !upToDate(src, res) {
		return reconcile.Result{RequeueAfter: next}, nil
	}
	until := time.Now().Add(next)
	src.cached.last = &lastSync{
		uid: src.gs.UID, generation: src.gs.Generation, asked: requests.Asked(src.gs), applied: src.gs.Status.AppliedCommit,
		remote: src.remote, since: src.since, approvals: res.approvals,
		unready: entriesOf(res.outcome.Unready), interval: src.gs.Spec.IntervalOrDefault(), until: until,
		version: src.gs.ResourceVersion, footprint: res.footprint,
	}
	src.store()
	return nextAt(src, res, until), nil
}

// upToDate reports whether nothing is left to do except to sync again.
func upToDate(src *source, res *result) bool {
	o := &res.outcome
	return !src.gs.Spec.Ref.IsPinned() && len(o.Problems) == 0 && len(o.Intents) == 0 && len(o.Ignored) == 0 && !res.unclear &&
		src.cached.desired != nil && !src.cached.desired.HasBases &&
		src.cached.desired.Commit == src.gs.Status.AppliedCommit && src.gs.Status.ObservedGeneration == src.gs.Generation
}

// nextAt is when to sync an up-to-date source next.
func nextAt(src *source, res *result, until time.Time) reconcile.Result {
	next := max(time.Until(until), time.Millisecond)
	if len(res.outcome.Unready) > 0 {
		next = min(next, outcome.Patience(src.gs, v1alpha1.ConditionReady, outcome.RetryWithin))
	}
	return reconcile.Result{RequeueAfter: next}
}
