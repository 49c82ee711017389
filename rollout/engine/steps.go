package engine

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// decideRelease is about the release or rollback that is under way. Until it has pods,
// its revision gets another name if admission makes another template of it.
func decideRelease(d *draft) {
	d.status.UpdateRevision = d.goal.name
	switch {
	case d.status.BeganFull && !d.runsAll():
		askFirstGate(d)
	case d.replicas == 0 && (d.status.RollingBack || d.lastStep() && !d.spec.Paused):
		finishRelease(d, "there is nothing to split", d.goal.template)
	case d.status.CurrentStepState == v1alpha1.StepInitial:
		decideInitial(d)
	default:
		decideStep(d)
	}
}

// decideInitial is about a release that has not taken the hold yet, or has
// taken over another's. It is left when the native controller has seen the
// hold and the template.
func decideInitial(d *draft) {
	switch {
	case d.edited():
		allowed := d.status.OpenedReplicas
		d.enterFirst()
		if d.running() > 0 && d.forward() && !slices.Contains(allowed, plan.Full) { // no edit adds to what is there
			d.status.OpenedReplicas = allowed
		}
		d.report(v1alpha1.ReasonTakingHold, "the steps have changed; "+d.goal.name+" has not begun")
	case d.spec.Paused:
		followReplicas(d)
		if !d.touched() && !d.stable.equal(&d.Deployment.Spec.Template) { // paused freezes what Git brings, and nothing else runs meanwhile
			d.warn(v1alpha1.ReasonDriftCorrected, "the template of the Deployment was changed while the plan is paused; it is put back")
			d.handBack("the template was changed while the plan is paused", d.stable.template)
		}
		d.report(v1alpha1.ReasonReleasePaused, "the plan is paused; "+d.goal.name+" has not begun")
	case unrecorded(&d.course):
		recordGoal(d)
	case d.parked() || inHold(&d.course) && d.seen():
		d.status.Phase = v1alpha1.PhaseRollingUpdate
		d.enter(int(d.status.CurrentStepIndex), v1alpha1.StepUpgrade)
		if d.replicas == 0 && d.parked() {
			unhold(d) // in this round: each moment in which N may grow again is one of H4
		}
		d.report(v1alpha1.ReasonUpgrading, d.progress())
	default:
		takeHold(d, fmt.Sprintf("release of %s", d.goal.name))
		if d.status.Reason != v1alpha1.ReasonRollingBack {
			d.report(v1alpha1.ReasonTakingHold, "about to release "+d.goal.name+unanswered(d))
		} else if len(d.actions) == 0 {
			d.report(v1alpha1.ReasonRollingBack, "back to "+d.goal.name+unanswered(d))
		}
	}
}

// decideStep is about a step whose predecessor's gate has opened. It is left
// for the next step through a gate, and from the last one by hand-back.
func decideStep(d *draft) {
	if d.edited() {
		reposition(d)
		return
	}
	if d.parked() {
		parkStep(d)
		return
	}
	if d.withheld() {
		unhold(d)
		d.report(v1alpha1.ReasonReleasePaused, "the plan is paused; "+d.progress())
		return
	}
	if unrecorded(&d.course) {
		recordGoal(d)
		return
	}
	if !inHold(&d.course) {
		restoreHold(d)
		return
	}
	if !d.seen() {
		d.report(v1alpha1.ReasonTakingHold, "waiting for the native controller to see the hold of "+d.goal.name+unanswered(d))
		return
	}
	trackProgress(d)
	sets := d.split()
	moveSizes(d, sets, purpose(&d.position))
	advance(d, len(d.actions) == 0 && stepDone(&d.position, sets))
}

// askFirstGate is about a release that began with all pods, and that has them no longer. It
// has opened no gate, and goes through all of them.
func askFirstGate(d *draft) {
	d.status.BeganFull = false
	state := v1alpha1.StepInitial
	if d.status.Phase != v1alpha1.PhaseInitial {
		d.status.Phase, state = v1alpha1.PhaseRollingUpdate, v1alpha1.StepUpgrade
	}
	d.enter(0, state)
	d.report(v1alpha1.ReasonUpgrading, d.progress())
}

// reposition goes on at the first step whose target is not below what runs, but at none
// that wants more than the last gate allowed. If even the first step does, it waits at a
// gate before it.
func reposition(d *draft) {
	step := d.firstNotBelow(size(d.goal.rs))
	for step > 0 && d.planned(step) > d.allowed() {
		step--
	}
	asked := slices.Contains(d.opened(), plan.Full)
	switch last := len(d.steps()) - 1; {
	case d.status.BeganFull: // it has still nothing to ask
		step = last
		if asked { // by a plan of one step
			d.status.OpenedReplicas = d.openTo(0)
		}
	case !d.forward() || asked:
	case step == last: // as many pods as there are replicas are not all that may come
		step = max(0, last-1)
	}
	// Admission may have made the stable template of what was sent: the gates are asked all the same.
	if (d.forward() || !d.status.RollingBack) && d.status.CurrentStepIndex == 0 && !d.status.BeganFull {
		step = 0 // no gate has opened: the first one is asked, whatever the steps are now
		lowerFirst(d)
	}
	d.enter(step, v1alpha1.StepUpgrade)
	d.status.Phase = v1alpha1.PhaseRollingUpdate
	d.event(v1alpha1.ReasonPlanChanged, fmt.Sprintf("the steps have changed; going on at step %d", d.status.CurrentStepIndex))
	d.report(v1alpha1.ReasonUpgrading, d.progress())
}

// lowerFirst lowers what a release may run that has opened no gate, and has no pod yet, to
// what the first step wants now.
func lowerFirst(d *draft) {
	at := d.status.CurrentStepReplicas
	unmoved := d.running() == 0 && at != nil && slices.Equal(d.opened(), []intstr.IntOrString{*at}) // and no gate has opened
	if unmoved && d.planned(0) < d.allowed() {
		d.status.OpenedReplicas = d.openTo(0)
	}
}

// stepDone reports whether the step's pods are available, and at the last step
// whether all others are gone.
func stepDone(p *position, sets []set) bool {
	goal, others := p.target(int(p.status.CurrentStepIndex))
	if p.lastStep() && total(numbers(sets[1:])) > 0 {
		return false
	}
	if !p.forward() {
		goal = max(goal, p.replicas-others)
	}
	g := sets[0]
	return g.size >= goal && g.observed && g.clamp().available >= goal
}

// advance goes on from a step that is done, and says what is waited for at one
// that is not.
func advance(d *draft, done bool) {
	refuseApproval(d)
	if !done {
		deferApproval(d)
	}
	switch {
	case done && d.lastStep():
		finalize(d)
	case done:
		countLoss(d)
		d.status.CurrentStepTarget, _ = d.target(int(d.status.CurrentStepIndex))
		decideGate(d)
	case d.status.CurrentStepState == v1alpha1.StepUpgrade:
		decideDeadline(d)
	case d.status.Phase == v1alpha1.PhaseFinalizing || lostPods(&d.position):
		fallBack(d)
	default:
		awaitPods(d)
	}
}

// finalize hands back. The step that says so comes first, by itself. A paused plan does
// not keep the hold: there is nothing left to freeze. A hold with one active set is no
// safe place to wait (H1).
func finalize(d *draft) {
	if d.status.Phase != v1alpha1.PhaseFinalizing {
		d.status.Phase = v1alpha1.PhaseFinalizing
		d.setState(v1alpha1.StepCompleted)
		d.report(v1alpha1.ReasonHandingBack, "all pods run "+d.goal.name+"; handing back to the native controller")
		return
	}
	if d.shadowed(&d.Deployment.Spec.Template) {
		d.report(v1alpha1.ReasonHandingBack, "all pods run "+d.goal.name+"; the hand-back waits"+d.deletions())
		return
	}
	finishRelease(d, "all pods run "+because(d.goal.name), nil)
}

// finishRelease hands back at what has become stable.
func finishRelease(d *draft, why because, template *corev1.PodTemplateSpec) {
	rememberGoal(d)
	d.handBack(why, template)
	completeRelease(d)
}
