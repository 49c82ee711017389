package engine

import (
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/gates"
	"github.com/tranche-dev/tranche/rollout/engine/position"
)

// This file is about a BatchRelease of a GitSource that another user has made: a restored
// one. Its spec and status may be older than what runs. So nothing begins, and nothing moves,
// until the GitSource has written it. After that an old status takes no pod away.

// awaitSource is about such a BatchRelease that the GitSource has not written yet. The status
// keeps what it knows. A hold stays whole, and the pods follow a new size of the Deployment.
func awaitSource(d *draft) {
	message := d.Unconfirmed
	if d.unreleased = true; d.Touched() && (d.Replicas == 0 || !Held(d.Deployment) || d.Resized()) {
		followReplicas(d)
	}
	if d.SourceGone {
		if d.Status.Reason != v1alpha1.ReasonWaitingForSource || !wasStalled(d.Facts) {
			d.warn(v1alpha1.ReasonWaitingForSource, message)
		}
		d.stall(v1alpha1.ReasonWaitingForSource, message)
	} else {
		d.report(v1alpha1.ReasonWaitingForSource, message)
	}
	d.wait = refusedInterval
}

// isOlder reports whether the status is older than the hold. This is the first round after
// [awaitSource]. Or the hold is taken for what Git brings, and the status is about a release
// that has ended.
func isOlder(p *position.Position) bool {
	if p.Status.Reason == v1alpha1.ReasonWaitingForSource {
		return p.Touched()
	}
	return p.Status.Phase == v1alpha1.PhaseCompleted && p.Forward() && !p.IsGoal() && position.InHold(&p.Course)
}

// missesGates reports whether a release under way has more pods than the gates of the status
// allow, in the first round after [awaitSource]. They have opened since the back-up.
func missesGates(p *position.Position) bool {
	return p.Status.Reason == v1alpha1.ReasonWaitingForSource && p.UnderWay() && !p.Status.RollingBack && position.InHold(&p.Course) &&
		p.Running() > p.Allowed()
}

// resume goes on at the step of what runs. It moves nothing.
func resume(d *draft) {
	d.enterRunning(v1alpha1.StepUpgrade)
	d.Status.Phase = v1alpha1.PhaseRollingUpdate
	d.report(v1alpha1.ReasonUpgrading, d.Progress())
}

// enterRunning puts a release whose status is too old at the step of what runs. That is what
// its gates have opened, as far as is known. It is all of the step if Git has an approval of
// the one before.
func (d *draft) enterRunning(state v1alpha1.StepState) {
	running := d.Running()
	if running == 0 || d.Status.RollingBack || d.Status.BeganFull {
		return
	}
	step := d.FirstNotBelow(running)
	d.enter(step, state)
	d.Status.OpenedReplicas = []intstr.IntOrString{intstr.FromInt32(running)}
	before := d.Position
	if before.Status.CurrentStepIndex--; step > 0 && gates.ApprovedInGit(&before) != nil {
		d.Status.OpenedReplicas = d.OpenTo(step)
	}
}
