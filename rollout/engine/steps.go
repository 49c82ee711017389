package engine

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/action"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
	"github.com/tranche-dev/tranche/rollout/engine/position"
)

// decideRelease is about the release or rollback that is under way. Until it has pods,
// its revision gets another name if admission makes another template of it.
func decideRelease(d *draft) {
	d.Status.UpdateRevision = d.Goal.Name
	followAnalysis(d)
	switch {
	case d.Status.BeganFull && !d.RunsAll():
		askFirstGate(d)
	case d.Replicas == 0 && (d.Status.RollingBack || d.LastStep() && !d.Spec.Paused && !d.AwaitsVerdict()):
		finishRelease(d, "there is nothing to split", d.Goal.Template)
	case d.Status.CurrentStepState == v1alpha1.StepInitial:
		decideInitial(d)
	default:
		decideStep(d)
	}
}

// decideInitial is about a release that has not taken the hold yet, or has taken over another's. It is
// left when the native controller has seen the hold and the template.
func decideInitial(d *draft) {
	switch {
	case d.Edited():
		enterEdited(d)
	case d.Spec.Paused:
		awaitResumption(d)
	case position.Unrecorded(&d.Course) && !d.Parked():
		recordGoal(d)
	case d.Parked() || position.InHold(&d.Course) && d.Seen():
		d.Status.Phase = v1alpha1.PhaseRollingUpdate
		d.enter(int(d.Status.CurrentStepIndex), v1alpha1.StepUpgrade)
		if d.Replicas == 0 && d.Parked() {
			unhold(d) // in this round: each moment in which N may grow again is one of H4
		}
		d.report(v1alpha1.ReasonUpgrading, d.Progress())
	default:
		takeHold(d, fmt.Sprintf("release of %s", d.Goal.Name))
		if d.Status.Reason != v1alpha1.ReasonRollingBack {
			d.report(v1alpha1.ReasonTakingHold, "about to release "+d.Goal.Name+unanswered(d))
		} else if len(d.actions) == 0 {
			d.report(v1alpha1.ReasonRollingBack, "back to "+d.Goal.Name+unanswered(d))
		}
	}
}

// enterEdited puts a release that has not begun at the first of the steps that it has now.
func enterEdited(d *draft) {
	allowed := d.Status.OpenedReplicas
	d.enterFirst()
	if d.Running() > 0 && d.Forward() && !slices.Contains(allowed, plan.Full) { // no edit adds to what is there
		d.Status.OpenedReplicas = allowed
	}
	d.report(v1alpha1.ReasonTakingHold, "the steps have changed; "+d.Goal.Name+" has not begun")
}

// awaitResumption is about a release that has not begun while its plan is paused. That freezes
// what Git brings, and nothing else runs meanwhile.
func awaitResumption(d *draft) {
	followReplicas(d)
	if !d.Touched() && !d.Stable.Equal(&d.Deployment.Spec.Template) {
		d.warn(v1alpha1.ReasonDriftCorrected, "the template of the Deployment was changed while the plan is paused; it is put back")
		d.handBack("the template was changed while the plan is paused", d.Stable.Template)
	}
	d.report(v1alpha1.ReasonReleasePaused, "the plan is paused; "+d.Goal.Name+" has not begun")
}

// decideStep is about a step whose predecessor's gate has opened. It is left
// for the next step through a gate, and from the last one by hand-back.
func decideStep(d *draft) {
	if d.Edited() {
		reposition(d)
		return
	}
	if rolledBackByVerdict(d) {
		return
	}
	if d.Parked() {
		parkStep(d)
		return
	}
	if d.Withheld() {
		unhold(d)
		d.report(v1alpha1.ReasonReleasePaused, "the plan is paused; "+d.Progress())
		return
	}
	if position.Unrecorded(&d.Course) {
		recordGoal(d)
		return
	}
	if !position.InHold(&d.Course) {
		restoreHold(d)
		return
	}
	if !d.Seen() {
		markFull(d)
		d.report(v1alpha1.ReasonTakingHold, "waiting for the native controller to see the hold of "+d.Goal.Name+unanswered(d))
		return
	}
	trackProgress(d)
	sets := d.Split()
	moveSizes(d, sets, action.Why(position.Purpose(&d.Position)))
	advance(d, len(d.actions) == 0 && position.StepDone(&d.Position, sets))
}

// askFirstGate is about a release that began with all pods, and that has them no longer. It
// has opened no gate, and goes through all of them.
func askFirstGate(d *draft) {
	d.Status.BeganFull = false
	state := v1alpha1.StepInitial
	if d.Status.Phase != v1alpha1.PhaseInitial {
		d.Status.Phase, state = v1alpha1.PhaseRollingUpdate, v1alpha1.StepUpgrade
	}
	d.enter(0, state)
	d.report(v1alpha1.ReasonUpgrading, d.Progress())
}

// reposition goes on at the first step whose target is not below what runs, but at none
// that wants more than the last gate allowed. If even the first step does, it waits at a
// gate before it.
func reposition(d *draft) {
	step := d.FirstNotBelow(facts.Size(d.Goal.ReplicaSet))
	for step > 0 && d.Planned(step) > d.Allowed() {
		step--
	}
	asked := slices.Contains(d.Opened(), plan.Full)
	switch last := len(d.Steps()) - 1; {
	case d.Status.BeganFull: // it has still nothing to ask
		step = last
		if asked { // by a plan of one step
			d.Status.OpenedReplicas = d.OpenTo(0)
		}
	case !d.Forward() || asked:
	case step == last: // as many pods as there are replicas are not all that may come
		step = max(0, last-1)
	}
	// Admission may have made the stable template of what was sent: the gates are asked all the same.
	if (d.Forward() || !d.Status.RollingBack) && d.Status.CurrentStepIndex == 0 && !d.Status.BeganFull {
		step = 0 // no gate has opened: the first one is asked, whatever the steps are now
		lowerFirst(d)
	}
	position.LeaveGate(&d.Status, d.Time())
	d.enter(step, v1alpha1.StepUpgrade)
	d.Status.Phase = v1alpha1.PhaseRollingUpdate
	d.event(v1alpha1.ReasonPlanChanged, fmt.Sprintf("the steps have changed; going on at step %d", d.Status.CurrentStepIndex))
	d.report(v1alpha1.ReasonUpgrading, d.Progress())
}

// lowerFirst lowers what a release may run that has opened no gate, and has no pod yet, to
// what the first step wants now.
func lowerFirst(d *draft) {
	at := d.Status.CurrentStepReplicas
	unmoved := d.Running() == 0 && at != nil && slices.Equal(d.Opened(), []intstr.IntOrString{*at}) // and no gate has opened
	if unmoved && d.Planned(0) < d.Allowed() {
		d.Status.OpenedReplicas = d.OpenTo(0)
	}
}

// advance goes on from a step that is done, and says what is waited for at one
// that is not.
func advance(d *draft, done bool) {
	refuseApproval(d)
	if !done {
		deferApproval(d)
	}
	switch {
	case !done && stalledByVerdict(d):
	case done && d.LastStep() && !d.AwaitsVerdict():
		finalize(d)
	case done:
		d.Status.CurrentStepLostSeconds = position.LostSeconds(&d.Position)
		d.Status.CurrentStepTarget, _ = d.Target(int(d.Status.CurrentStepIndex))
		decideGate(d)
	case d.Status.CurrentStepState == v1alpha1.StepUpgrade:
		decideDeadline(d)
	case d.Status.Phase == v1alpha1.PhaseFinalizing || position.LostPods(&d.Position):
		fallBack(d)
	default:
		awaitPods(d)
	}
}

// finalize hands back. The step that says so comes first, by itself. A paused plan does
// not keep the hold: there is nothing left to freeze. A hold with one active set is no
// safe place to wait (H1).
func finalize(d *draft) {
	if d.Status.Phase != v1alpha1.PhaseFinalizing {
		passAnalysis(d)
		d.Status.Phase = v1alpha1.PhaseFinalizing
		d.setState(v1alpha1.StepCompleted)
		d.report(v1alpha1.ReasonHandingBack, "all pods run "+d.Goal.Name+"; handing back to the native controller")
		return
	}
	if d.Shadowed(&d.Deployment.Spec.Template) {
		d.report(v1alpha1.ReasonHandingBack, "all pods run "+d.Goal.Name+"; the hand-back waits"+d.Deletions())
		return
	}
	finishRelease(d, "all pods run "+action.Why(d.Goal.Name), nil)
}

// finishRelease hands back at what has become stable.
func finishRelease(d *draft, why action.Why, template *corev1.PodTemplateSpec) {
	rememberGoal(d)
	d.handBack(why, template)
	completeRelease(d)
}
