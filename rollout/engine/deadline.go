package engine

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/position"
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
	if d.Deadline() <= 0 && recovered(&d.Position) {
		d.Status.ProgressTime, d.Status.CurrentStepLostSeconds = d.Time(), 0
	}
}

// recovered reports whether a step that has missed its deadline can go on. All of its
// pods are then available again, and only the deadline keeps it from moving.
func recovered(p *position.Position) bool {
	g := position.NewSet(*p.Goal)
	if p.Spec.Paused || p.Status.RollingBack || !g.Observed || g.Clamp().Available < g.Size {
		return false
	}
	return !slices.Equal(p.Next(p.Shares(false)), p.Next(p.Shares(true)))
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
		d.report(reasonUnderWay(&d.Position), d.Progress())
	default:
		missDeadline(d)
	}
}

// lostPods reports whether a step that had its pods has too few of them left. The measure is
// the number that was wanted then, or is now if that is less. A step has too few if fewer
// are available than that number less its maxUnavailable.
func lostPods(p *position.Position) bool {
	target, _ := p.Target(int(p.Status.CurrentStepIndex))
	had := min(p.Status.CurrentStepTarget, target)
	_, unavailable, err := plan.Bounds(&p.Strategy, had)
	if err != nil {
		unavailable = 0
	}
	g := position.NewSet(*p.Goal)
	return g.Clamp().Available < had-max(0, min(unavailable, had-1))
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
	endStepAnalysis(d)
	d.Status.ProgressTime = d.Time()
	d.Status.BestAvailableReplicas = d.GoalPods().Available
	d.unready = d.IsUnready()
	d.warn(v1alpha1.ReasonPodsLost,
		fmt.Sprintf("step %d had its pods available and is under way again: %s", d.Status.CurrentStepIndex, d.Progress()))
	d.report(reasonUnderWay(&d.Position), d.Progress())
}

// countLoss adds the time that a step which had lost its pods took to have them back.
func countLoss(d *draft) {
	if d.Status.CurrentStepState != v1alpha1.StepUpgrade || d.Status.CurrentStepTarget == 0 || d.Status.StepStateTime == nil {
		return
	}
	lost := int64(d.Status.CurrentStepLostSeconds) + int64(d.Now.Sub(d.Status.StepStateTime.Time)/time.Second) + 1
	d.Status.CurrentStepLostSeconds = int32(min(lost, math.MaxInt32))
}

// awaitPods is about a step whose target was raised at its gate. The gate waits for the
// pods, and the release does not fail for them.
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
		d.report(reasonUnderWay(&d.Position), d.Progress())
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
	case stalled, placedLate(&d.Position):
		d.Status.ProgressTime, d.Status.CurrentStepLostSeconds = d.Time(), 0
		d.wait = d.Deadline()
		d.report(reasonUnderWay(&d.Position), d.Progress())
	default:
		d.needsPods = d.Pods == nil
		message := missedMessage(&d.Position)
		d.warn(v1alpha1.ReasonProgressDeadlineExceeded, message)
		failRelease(d, message)
	}
}

// placedLate reports whether all pods that fail got their nodes in the second half of the
// time that the step has had. Until then the cluster kept them away. The deadline then
// starts again. They have had their nodes in its first half the next time.
func placedLate(p *position.Position) bool {
	if p.Pods == nil || p.Pods.PlacedTime.IsZero() || p.Status.ProgressTime == nil {
		return false
	}
	waited := p.Pods.PlacedTime.Sub(p.Status.ProgressTime.Time)
	return p.Now.Sub(p.Pods.PlacedTime) < waited
}

func stallMissed(d *draft) {
	d.needsPods = d.Pods == nil
	message := missedMessage(&d.Position)
	if d.Status.Reason != v1alpha1.ReasonProgressDeadlineExceeded {
		d.warn(v1alpha1.ReasonProgressDeadlineExceeded, message)
	}
	d.stall(v1alpha1.ReasonProgressDeadlineExceeded, message)
}

func missedMessage(p *position.Position) string {
	return fmt.Sprintf("step %d made no progress in time: %s", p.Status.CurrentStepIndex, p.Progress())
}
