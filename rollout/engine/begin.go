package engine

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// beginRelease starts a release, or the way back. It moves nothing.
//
// A release begins at its first step and goes through all its gates, whatever runs
// already. The same template by another commit, and a release whose status was lost, have
// opened none.
func beginRelease(d *draft) {
	lost := d.status.Phase == "" && d.touched()
	archiveCurrent(d)
	afterwards := !releasing(&d.status) || d.status.RollingBack // in the middle, only the stable one is a way back
	if d.status.Phase == v1alpha1.PhaseCompleted && !d.forward() && !d.failed() {
		d.warn(v1alpha1.ReasonDriftCorrected, "the template of the Deployment was changed by a field manager other than Tranche")
	}
	if !d.failed() {
		d.clearFailed()
	}
	d.status.Phase = v1alpha1.PhaseInitial
	d.status.RollingBack = !d.forward() || afterwards && len(d.records) > 1 && d.goal.record != nil && d.goal.record.Name == d.records[1].Name
	d.status.StableRevision = d.stable.name
	d.status.UpdateRevision = d.goal.name
	d.status.UpdateTemplateDigest = d.goal.id
	d.status.UpdateCommit = d.spec.Commit
	d.status.StartTime = d.time()
	d.status.Approvals = nil
	d.status.BeganFull = !d.status.RollingBack && d.runsAll()
	d.enterFirst()
	if lost {
		d.openWhatRuns()
	}
	if d.status.RollingBack {
		d.event(v1alpha1.ReasonRollingBack, "back to "+d.goal.name)
		d.report(v1alpha1.ReasonRollingBack, "back to "+d.goal.name)
		return
	}
	d.event(v1alpha1.ReasonReleaseStarted, fmt.Sprintf("%s to %s%s", d.stable.name, d.goal.name, fromCommit(d.spec.Commit)))
	d.report(v1alpha1.ReasonTakingHold, fmt.Sprintf("about to release %s", d.goal.name))
}

// enterFirst puts the release at the step where it begins.
func (d *draft) enterFirst() {
	step := 0
	switch {
	case d.status.BeganFull, d.status.RollingBack && d.runsAll():
		step = len(d.steps()) - 1
	case d.status.RollingBack:
		step = d.firstNotBelow(size(d.goal.rs))
	}
	d.status.OpenedReplicas = d.openTo(0)
	d.enter(step, v1alpha1.StepInitial)
}

// openWhatRuns is about a release whose status was lost in the middle. Its plan may have
// been edited since, and no one knows what its gates had allowed: what runs is all that
// it is sure of. A first step that wants more, or all pods at any N, waits at a gate
// before it.
func (d *draft) openWhatRuns() {
	running := d.running()
	unasked := d.planned(0) <= running && !d.full()
	if running == 0 || unasked || d.status.RollingBack || d.status.BeganFull {
		return
	}
	d.status.OpenedReplicas = []intstr.IntOrString{intstr.FromInt32(running)}
}

func fromCommit(commit string) string {
	if commit == "" {
		return ""
	}
	return ", from commit " + commit
}

// enter puts the release at a step. It moves nothing.
func (d *draft) enter(step int, state v1alpha1.StepState) {
	replicas := d.steps()[step].Replicas
	d.status.CurrentStepIndex = int32(step)
	d.status.CurrentStepReplicas = &replicas
	d.setState(state)
	d.status.RequestedApproval = nil
	d.status.CurrentStepTarget, d.status.CurrentStepLostSeconds = 0, 0
	d.status.ProgressTime = d.time()
	d.status.BestAvailableReplicas = d.goalPods().available
}

func (d *draft) setState(s v1alpha1.StepState) {
	d.status.CurrentStepState = s
	d.status.StepStateTime = d.time()
}
