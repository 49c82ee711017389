package engine

import (
	"fmt"
	"time"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/position"
	"github.com/tranche-dev/tranche/rollout/engine/verdict"
)

// trackProgress keeps the step's best number of available pods, and when that was
// reached. The deadline runs from it, so pods that come and go do not extend it for ever.
// Time in which nothing could move does not count: paused, refused, or with no controller
// running.
func trackProgress(d *draft) {
	if d.Status.CurrentStepState != v1alpha1.StepUpgrade {
		return
	}
	available := d.GoalPods().Available
	goal, _ := d.Target(int(d.Status.CurrentStepIndex))
	best := min(d.Status.BestAvailableReplicas, goal) // a Deployment made smaller begins again
	if available > best || stoppedBy[d.Status.Reason] && !d.Spec.Paused {
		best = available
		d.Status.ProgressTime = d.Time()
	}
	d.Status.BestAvailableReplicas = best
	if d.Deadline() <= 0 && position.Recovered(&d.Position) {
		d.Status.ProgressTime, d.Status.CurrentStepLostSeconds = d.Time(), 0
	}
}

// stoppedBy are the reasons for which nothing could move.
var stoppedBy = map[string]bool{
	v1alpha1.ReasonReleasePaused: true, v1alpha1.ReasonWriteRefused: true, v1alpha1.ReasonTemplateRefused: true,
	v1alpha1.ReasonHandBackRefused: true,
	v1alpha1.ReasonInvalidPlan:     true, v1alpha1.ReasonUnsupportedStrategy: true, v1alpha1.ReasonAnotherPlan: true,
	v1alpha1.ReasonRecordsLost:      true,
	v1alpha1.ReasonWaitingForSource: true, v1alpha1.ReasonAnalysisFailed: true,
}

// decideDeadline is about a step whose pods are on their way.
func decideDeadline(d *draft) {
	switch left := d.Deadline(); {
	case d.Spec.Paused:
		d.report(v1alpha1.ReasonReleasePaused, "the plan is paused; "+d.Progress())
	case left > 0:
		d.wait, d.unready = left, d.IsUnready()
		d.report(position.ReasonUnderWay(&d.Position), d.Progress())
	default:
		missDeadline(d)
	}
}

// fallBack puts a step that has lost its pods under way again. Its pause starts
// again once they are back, and the deadline runs from the number now available.
func fallBack(d *draft) {
	had := d.Status.StepStateTime
	if had == nil { // it waited at a gate before the step
		had = d.Status.ProgressTime
	}
	if had != nil && d.Now.Sub(had.Time) >= d.DeadlineLength() {
		d.Status.CurrentStepLostSeconds = 0 // it had them long enough
	}
	d.Status.Phase = v1alpha1.PhaseRollingUpdate
	d.setState(v1alpha1.StepUpgrade)
	verdict.EndStep(d.Status.Analysis)
	d.Status.ProgressTime = d.Time()
	d.Status.BestAvailableReplicas = d.GoalPods().Available
	d.unready = d.IsUnready()
	d.warn(v1alpha1.ReasonPodsLost,
		fmt.Sprintf("step %d had its pods available and is under way again: %s", d.Status.CurrentStepIndex, d.Progress()))
	d.report(position.ReasonUnderWay(&d.Position), d.Progress())
}

// awaitPods is about a step whose target was raised at its gate, or that has lost no more of
// its pods than maxUnavailable allows. The gate waits for the pods. The release does not fail
// for those that it never had.
func awaitPods(d *draft) {
	if d.Spec.Paused {
		d.report(v1alpha1.ReasonReleasePaused, "the plan is paused; "+d.Progress())
		return
	}
	waiting := d.Status.Reason == v1alpha1.ReasonUpgrading || d.Status.Reason == v1alpha1.ReasonProgressDeadlineExceeded
	if available := d.GoalPods().Available; !waiting || available > d.Status.BestAvailableReplicas {
		d.Status.ProgressTime, d.Status.BestAvailableReplicas = d.Time(), available
	}
	if left := d.DeadlineLength() - d.Now.Sub(d.Status.ProgressTime.Time); left > 0 {
		d.wait, d.unready = left, d.IsUnready()
		d.report(position.ReasonUnderWay(&d.Position), d.Progress())
		return
	}
	if position.LacksPods(&d.Position) {
		missDeadline(d)
		return
	}
	stallMissed(d)
}

// podsInterval is when to look again at pods that the cluster has no place for: no
// ReplicaSet changes when they get one, and fail then.
const podsInterval = time.Minute

// missDeadline is about a step that has missed its deadline: it stops and says so,
// or goes back. A way back that misses it has nowhere to go, and pods that the
// cluster has no place for do not tell against the release.
func missDeadline(d *draft) {
	target, _ := d.Target(int(d.Status.CurrentStepIndex))
	mayRollBack := d.Spec.Strategy.OnFailure == v1alpha1.FailureRollback && !d.Status.RollingBack && d.Forward()
	stalled := d.Release.Status.Reason == v1alpha1.ReasonProgressDeadlineExceeded // the cluster kept the pods away until now
	switch {
	case !mayRollBack || d.GoalPods().Available >= target:
		stallMissed(d)
	case d.Pods == nil && stalled, d.Pods != nil && d.Pods.Failing == 0:
		d.wait = podsInterval
		stallMissed(d)
	case stalled, position.PlacedLate(&d.Position):
		d.Status.ProgressTime, d.Status.CurrentStepLostSeconds = d.Time(), 0
		d.wait = d.Deadline()
		d.report(position.ReasonUnderWay(&d.Position), d.Progress())
	default:
		d.needsPods = d.Pods == nil
		message := position.MissedMessage(&d.Position)
		d.warn(v1alpha1.ReasonProgressDeadlineExceeded, message)
		failRelease(d, message)
	}
}

func stallMissed(d *draft) {
	d.needsPods = d.Pods == nil
	message := position.MissedMessage(&d.Position)
	if d.Status.Reason != v1alpha1.ReasonProgressDeadlineExceeded {
		d.warn(v1alpha1.ReasonProgressDeadlineExceeded, message)
	}
	d.stall(v1alpha1.ReasonProgressDeadlineExceeded, message)
}
