package engine

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/contest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/position"
)

// Decide returns what to write next, in this order, and the status that is
// then true. The same Observed and now always give the same Decision; it keeps
// nothing between calls, and changes nothing of what it is given.
func Decide(o Observed, now time.Time) Decision {
	d := newDraft(&o, now)
	decide(d)
	return conclude(d)
}

func decide(d *draft) {
	followClock(d)
	excuseAbsence(d)
	if d.Deployment == nil || d.Deployment.DeletionTimestamp != nil {
		decideWithout(d)
		return
	}
	if d.Rival != "" {
		d.stall(v1alpha1.ReasonAnotherPlan, fmt.Sprintf("BatchRelease %s governs Deployment %s: a plan of a GitSource goes "+
			"before one made by hand, and among equals the older one; delete one of the two", d.Rival, d.Deployment.Name))
		return
	}
	if d.Unconfirmed != "" {
		awaitSource(d)
		return
	}
	if reason, message := position.Unusable(&d.Course); reason != "" {
		refusePlan(d, reason, message)
		return
	}
	excuseRefusal(d)
	if len(d.StableRecords) == 0 {
		adoptRunning(d)
		return
	}
	if d.Status.Phase == "" && !d.Touched() && !plan.EqualTemplate(d.StableRecords[0].Template, &d.Deployment.Spec.Template) &&
		adoptRunning(d) {
		return // a plan that comes back: what is on record ran before the last one went
	}
	d.Course = d.Resolve(&d.Status)
	if d.LeftAlone() && !d.Touched() {
		d.unreleased = d.Brought != nil && !d.Brought.Equal(&d.Deployment.Spec.Template)
		standStill(d)
		d.report(v1alpha1.ReasonReleasePaused, "annotation "+v1alpha1.AnnotationReconcile+" of the Deployment is "+
			v1alpha1.AnnotationReconcileDisabled+"; nothing begins, and what others change stays")
		return
	}
	decideUsable(d)
}

// decideUsable is about a plan that can be used, and a Deployment that it may change.
func decideUsable(d *draft) {
	observeApproval(d)
	observeSteps(d)
	if requestedRollback(d) {
		return
	}
	switch {
	case position.IsDrift(&d.Position) && d.Contested > 0:
		d.wait, d.unreleased = d.Contested, true
		by := cmp.Or(d.ContestedBy, "template, strategy or paused of the Deployment were changed")
		d.report(v1alpha1.ReasonDriftCorrected, by+contest.Until)
	case position.Labelled(&d.Position):
		d.do(Unlabel{Why: "the Deployment is native, and no release is under way"})
	case d.Idle():
		settleIdle(d)
	case d.Forward() && position.Ended(&d.Position) != nil:
		endFirst(d)
	case !d.UnderWay():
		beginRelease(d)
	case missesGates(&d.Position):
		resume(d)
	default:
		decideRelease(d)
	}
}

// Refused returns the status that says that a write was refused, and when to look again.
// The release stands where it stood, and its pods are counted as they were observed. If
// the round has failed before that, o has no Deployment: the counts stay.
func Refused(o Observed, err error, now time.Time) (v1alpha1.BatchReleaseStatus, time.Duration) {
	d := newDraft(&o, now)
	followClock(d)
	observeApproval(d) // it is for the steps of now, whenever the gate opens
	d.stall(v1alpha1.ReasonWriteRefused, err.Error())
	held := meta.IsStatusConditionTrue(d.Status.Conditions, v1alpha1.ConditionHeld)
	d.Status.ObservedGeneration = o.Release.Generation
	countPods(d)
	limitWait(d)
	setConditions(d)
	if d.Deployment == nil && held {
		d.condition(v1alpha1.ConditionHeld, metav1.ConditionTrue, v1alpha1.ReasonHeld, "the native controller is kept off")
	}
	d.wait = refusedInterval
	paceStatus(d)
	return d.Status, d.wait
}
