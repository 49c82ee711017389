package engine

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// trackProgress keeps the step's best number of available pods, and when that was
// reached. The deadline runs from it, so pods that come and go do not extend it for ever.
// Time in which nothing could move does not count: paused, refused, or with no controller
// running.
func trackProgress(d *draft) {
	if d.status.CurrentStepState != v1alpha1.StepUpgrade {
		return
	}
	available := d.goalPods().available
	goal, _ := d.target(int(d.status.CurrentStepIndex))
	best := min(d.status.BestAvailableReplicas, goal) // a Deployment made smaller begins again
	if available > best || stoppedBy[d.status.Reason] && !d.spec.Paused {
		best = available
		d.status.ProgressTime = d.time()
	}
	d.status.BestAvailableReplicas = best
	if d.deadline() <= 0 && recovered(&d.position) {
		d.status.ProgressTime, d.status.CurrentStepLostSeconds = d.time(), 0
	}
}

// recovered reports whether a step that has missed its deadline can go on. All of its
// pods are then available again, and only the deadline keeps it from moving.
func recovered(p *position) bool {
	g := newSet(*p.goal)
	if p.spec.Paused || p.status.RollingBack || !g.observed || g.clamp().available < g.size {
		return false
	}
	return !slices.Equal(p.next(p.shares(false)), p.next(p.shares(true)))
}

// stoppedBy are the reasons for which nothing could move.
var stoppedBy = map[string]bool{
	v1alpha1.ReasonReleasePaused: true, v1alpha1.ReasonWriteRefused: true, v1alpha1.ReasonTemplateRefused: true, v1alpha1.ReasonHandBackRefused: true,
	v1alpha1.ReasonInvalidPlan: true, v1alpha1.ReasonUnsupportedStrategy: true, v1alpha1.ReasonAnotherPlan: true, v1alpha1.ReasonRecordsLost: true,
}

// decideDeadline is about a step whose pods are on their way.
func decideDeadline(d *draft) {
	switch left := d.deadline(); {
	case d.spec.Paused:
		d.report(v1alpha1.ReasonReleasePaused, "the plan is paused; "+d.progress())
	case left > 0:
		d.wait, d.unready = left, d.isUnready()
		d.report(reasonUnderWay(&d.position), d.progress())
	default:
		missDeadline(d)
	}
}

// lostPods reports whether a step that had its pods has too few of them left. The measure is
// the number that was wanted then, or is now if that is less. A step has too few if fewer
// are available than that number less its maxUnavailable.
func lostPods(p *position) bool {
	target, _ := p.target(int(p.status.CurrentStepIndex))
	had := min(p.status.CurrentStepTarget, target)
	_, unavailable, err := plan.Bounds(&p.strategy, had)
	if err != nil {
		unavailable = 0
	}
	g := newSet(*p.goal)
	return g.clamp().available < had-max(0, min(unavailable, had-1))
}

// fallBack puts a step that has lost its pods under way again. Its pause starts
// again once they are back, and the deadline runs from the number now available.
func fallBack(d *draft) {
	had := d.status.StepStateTime
	if had == nil { // it waited at a gate before the step
		had = d.status.ProgressTime
	}
	if had != nil && d.now.Sub(had.Time) >= d.deadlineLength() {
		d.status.CurrentStepLostSeconds = 0 // it had them long enough
	}
	d.status.Phase = v1alpha1.PhaseRollingUpdate
	d.setState(v1alpha1.StepUpgrade)
	d.status.ProgressTime = d.time()
	d.status.BestAvailableReplicas = d.goalPods().available
	d.unready = d.isUnready()
	d.warn(v1alpha1.ReasonPodsLost, fmt.Sprintf("step %d had its pods available and is under way again: %s", d.status.CurrentStepIndex, d.progress()))
	d.report(reasonUnderWay(&d.position), d.progress())
}

// countLoss adds the time that a step which had lost its pods took to have them back.
func countLoss(d *draft) {
	if d.status.CurrentStepState != v1alpha1.StepUpgrade || d.status.CurrentStepTarget == 0 || d.status.StepStateTime == nil {
		return
	}
	lost := int64(d.status.CurrentStepLostSeconds) + int64(d.now.Sub(d.status.StepStateTime.Time)/time.Second) + 1
	d.status.CurrentStepLostSeconds = int32(min(lost, math.MaxInt32))
}

// awaitPods is about a step whose target was raised at its gate. The gate waits for the
// pods, and the release does not fail for them.
func awaitPods(d *draft) {
	if d.spec.Paused {
		d.report(v1alpha1.ReasonReleasePaused, "the plan is paused; "+d.progress())
		return
	}
	waiting := d.status.Reason == v1alpha1.ReasonUpgrading || d.status.Reason == v1alpha1.ReasonProgressDeadlineExceeded
	if available := d.goalPods().available; !waiting || available > d.status.BestAvailableReplicas {
		d.status.ProgressTime, d.status.BestAvailableReplicas = d.time(), available
	}
	if left := d.deadlineLength() - d.now.Sub(d.status.ProgressTime.Time); left > 0 {
		d.wait, d.unready = left, d.isUnready()
		d.report(reasonUnderWay(&d.position), d.progress())
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
	target, _ := d.target(int(d.status.CurrentStepIndex))
	mayRollBack := d.spec.Strategy.OnFailure == v1alpha1.FailureRollback && !d.status.RollingBack && d.forward()
	stalled := d.Release.Status.Reason == v1alpha1.ReasonProgressDeadlineExceeded // the cluster kept the pods away until now
	switch {
	case !mayRollBack || d.goalPods().available >= target:
		stallMissed(d)
	case d.Pods == nil && stalled, d.Pods != nil && d.Pods.Failing == 0:
		d.wait = podsInterval
		stallMissed(d)
	case stalled, placedLate(&d.position):
		d.status.ProgressTime, d.status.CurrentStepLostSeconds = d.time(), 0
		d.wait = d.deadline()
		d.report(reasonUnderWay(&d.position), d.progress())
	default:
		d.needsPods = d.Pods == nil
		message := missedMessage(&d.position)
		d.warn(v1alpha1.ReasonProgressDeadlineExceeded, message)
		failRelease(d, message)
	}
}

// placedLate reports whether all pods that fail got their nodes in the second half of the
// time that the step has had. Until then the cluster kept them away. The deadline then
// starts again. They have had their nodes in its first half the next time.
func placedLate(p *position) bool {
	if p.Pods == nil || p.Pods.PlacedTime.IsZero() || p.status.ProgressTime == nil {
		return false
	}
	waited := p.Pods.PlacedTime.Sub(p.status.ProgressTime.Time)
	return p.now.Sub(p.Pods.PlacedTime) < waited
}

func stallMissed(d *draft) {
	d.needsPods = d.Pods == nil
	message := missedMessage(&d.position)
	if d.status.Reason != v1alpha1.ReasonProgressDeadlineExceeded {
		d.warn(v1alpha1.ReasonProgressDeadlineExceeded, message)
	}
	d.stall(v1alpha1.ReasonProgressDeadlineExceeded, message)
}

func missedMessage(p *position) string {
	return fmt.Sprintf("step %d made no progress in time: %s", p.status.CurrentStepIndex, p.progress())
}
