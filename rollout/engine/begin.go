package engine

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
	"github.com/tranche-dev/tranche/rollout/engine/position"
	"github.com/tranche-dev/tranche/rollout/engine/verdict"
)

// beginRelease starts a release, or the way back. It moves nothing.
//
// A release begins at its first step and goes through all its gates, whatever runs
// already. The same template by another commit, and a release whose status was lost, have
// opened none. If the status is older than the hold, the release goes on with what runs.
func beginRelease(d *draft) {
	lost, older := d.Status.Phase == "" && d.Touched(), isOlder(&d.Position)
	archiveCurrent(d)
	back := position.GoesBack(&d.Position)
	if d.Status.Phase == v1alpha1.PhaseCompleted && !d.Forward() && !d.Failed() {
		d.warn(v1alpha1.ReasonDriftCorrected, "the template of the Deployment was changed by a field manager other than Tranche")
	}
	if !d.Failed() {
		d.clearFailed()
	}
	d.Status.Phase = v1alpha1.PhaseInitial
	d.Status.RollingBack = back
	d.Status.StableRevision = d.Stable.Name
	d.Status.UpdateRevision = d.Goal.Name
	d.Status.UpdateTemplateDigest = d.Goal.ID
	d.Status.UpdateCommit = d.Spec.Commit
	d.Status.StartTime = d.Time()
	d.Status.Approvals, d.Status.StepTimes, d.Status.Analysis = nil, nil, nil
	d.Status.BeganFull = !d.Status.RollingBack && d.RunsAll()
	d.enterFirst()
	switch {
	case lost:
		d.openWhatRuns()
	case older:
		d.enterRunning(v1alpha1.StepInitial)
	}
	if d.Status.RollingBack {
		d.event(v1alpha1.ReasonRollingBack, "back to "+d.Goal.Name)
		d.report(v1alpha1.ReasonRollingBack, "back to "+d.Goal.Name)
		return
	}
	d.event(v1alpha1.ReasonReleaseStarted, fmt.Sprintf("%s to %s%s", d.Stable.Name, d.Goal.Name, fromCommit(d.Spec.Commit)))
	d.report(v1alpha1.ReasonTakingHold, fmt.Sprintf("about to release %s", d.Goal.Name))
}

// endFirst makes stable what all pods run, before something else begins: what comes takes the place of that, and a
// revert leads back to it. If it is the stable revision that comes, that is a rollback, and needs no other.
func endFirst(d *draft) {
	next := d.Goal.Name
	d.Course = d.To(position.Ended(&d.Position))
	rememberGoal(d)
	d.report(v1alpha1.ReasonHandingBack, fmt.Sprintf("all pods run %s, which is stable; %s comes next", d.Goal.Name, next))
}

// enterFirst puts the release at the step where it begins.
func (d *draft) enterFirst() {
	step := 0
	switch {
	case d.Status.BeganFull, d.Status.RollingBack && d.RunsAll():
		step = len(d.Steps()) - 1
	case d.Status.RollingBack:
		step = d.FirstNotBelow(facts.Size(d.Goal.ReplicaSet))
	}
	d.Status.OpenedReplicas = d.OpenTo(0)
	d.enter(step, v1alpha1.StepInitial)
}

// openWhatRuns is about a release whose status was lost in the middle. Its plan may have
// been edited since, and no one knows what its gates had allowed: what runs is all that
// it is sure of. A first step that wants more, or all pods at any N, waits at a gate
// before it.
func (d *draft) openWhatRuns() {
	running := d.Running()
	unasked := d.Planned(0) <= running && !d.Full()
	if running == 0 || unasked || d.Status.RollingBack || d.Status.BeganFull {
		return
	}
	d.Status.OpenedReplicas = []intstr.IntOrString{intstr.FromInt32(running)}
}

func fromCommit(commit string) string {
	if commit == "" {
		return ""
	}
	return ", from commit " + commit
}

// enter puts the release at a step. It moves nothing.
func (d *draft) enter(step int, state v1alpha1.StepState) {
	replicas := d.Steps()[step].Replicas
	d.Status.CurrentStepIndex = int32(step)
	d.Status.CurrentStepReplicas = &replicas
	d.setState(state)
	d.Status.RequestedApproval = nil
	d.Status.CurrentStepTarget, d.Status.CurrentStepLostSeconds = 0, 0
	verdict.EndStep(d.Status.Analysis)
	d.Status.ProgressTime = d.Time()
	d.Status.BestAvailableReplicas = d.GoalPods().Available
}

func (d *draft) setState(s v1alpha1.StepState) {
	d.Status.CurrentStepState = s
	d.Status.StepStateTime = d.Time()
}
