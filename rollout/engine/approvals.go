package engine

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/gates"
	"github.com/tranche-dev/tranche/rollout/engine/position"
)

// noteRequest notes an approval given in the cluster that is to be reviewed, and
// puts the state back. The time stays: a pause that runs goes on.
func noteRequest(d *draft) {
	if !d.Spec.ReviewApprovals || d.Status.RollingBack || d.LastStep() || d.Status.CurrentStepState != v1alpha1.StepCompleted {
		return
	}
	d.Status.CurrentStepState = v1alpha1.StepBlocking
	d.request(v1alpha1.ReasonWaitingForReview, "; the approval is to be reviewed")
}

// deferApproval notes an approval given in the cluster while the step's pods are
// not available. It opens the gate once they are.
func deferApproval(d *draft) {
	if d.Status.RollingBack || d.Status.CurrentStepState != v1alpha1.StepCompleted || d.Status.Phase == v1alpha1.PhaseFinalizing {
		return
	}
	d.takeBackState()
	if d.LastStep() { // there is nothing to approve, and its deadline runs
		return
	}
	d.request(v1alpha1.ReasonStepApproved, "; the gate opens once the step's pods are available")
}

func (d *draft) request(reason, then string) {
	if d.Status.RequestedApproval == nil {
		d.Status.RequestedApproval = &v1alpha1.RequestedApproval{Step: d.Status.CurrentStepIndex, Time: *d.Time()}
		d.event(reason, fmt.Sprintf("step %d of %s was approved in the cluster%s", d.Status.CurrentStepIndex, d.Goal.Name, then))
	}
}

// takeBackState puts back the state over which an approval was written. The time
// stays, so that no pause begins again.
func (d *draft) takeBackState() {
	if d.Status.CurrentStepTarget > 0 {
		d.Status.CurrentStepState = v1alpha1.StepBlocking
		return
	}
	d.Status.CurrentStepState, d.Status.ProgressTime = v1alpha1.StepUpgrade, d.Time()
}

// refuseApproval takes back an approval that was given in the cluster if only signed
// ones count. The step's times stay, so that no pause begins again.
func refuseApproval(d *draft) {
	if !d.Spec.RequireSignedApprovals || d.Status.CurrentStepState != v1alpha1.StepCompleted ||
		d.Status.Phase == v1alpha1.PhaseFinalizing || d.Status.RollingBack || d.Deployment != nil && d.LastStep() {
		return
	}
	d.takeBackState()
	d.warn(v1alpha1.ReasonApprovalRefused, fmt.Sprintf("step %d of %s was approved in the cluster, and only signed approvals "+
		"count; commit a signed one", d.Status.CurrentStepIndex, d.Status.UpdateRevision))
}

// observeApproval keeps spec.approval as it is first seen, with the steps that the plan has then,
// unless it names those itself. An edit of the plan does not change what was approved.
func observeApproval(d *draft) {
	a := d.Spec.Approval
	if a == nil {
		d.Status.Approval = nil
		return
	}
	observed := v1alpha1.ObservedApproval{Approval: *a.DeepCopy()}
	if old := d.Status.Approval; old != nil {
		before := *old.Approval.DeepCopy()
		if len(a.Steps) == 0 {
			before.Steps = nil
		}
		if equality.Semantic.DeepEqual(before, observed.Approval) {
			return
		}
	}
	if len(observed.Steps) == 0 {
		for _, s := range d.Spec.Strategy.Steps {
			observed.Steps = append(observed.Steps, s.Replicas)
		}
	}
	d.Status.Approval = &observed
}

// observeSteps notes the steps that the status is about. An approval that was written to
// the status is for those that stood there. If the gate leads to another step by now, it
// is taken back.
func observeSteps(d *draft) {
	before := d.Status.Steps
	d.Status.Steps = nil
	for _, s := range d.Spec.Strategy.Steps {
		d.Status.Steps = append(d.Status.Steps, s.Replicas)
	}
	given := d.Status.CurrentStepState == v1alpha1.StepCompleted && d.Status.Phase != v1alpha1.PhaseFinalizing ||
		d.Status.RequestedApproval != nil
	if !given || len(before) == 0 || d.Status.RollingBack || !position.Releasing(&d.Status) || gates.StepsUnchanged(&d.Position, before) {
		return
	}
	d.Status.RequestedApproval = nil
	if d.Status.CurrentStepState == v1alpha1.StepCompleted {
		d.takeBackState()
	}
	d.warn(v1alpha1.ReasonApprovalIgnored, fmt.Sprintf("step %d of %s was approved in the cluster for other steps than the "+
		"plan has now; approve it again", d.Status.CurrentStepIndex, d.Goal.Name))
}

// warnOfApproval tells of an approval that is for another release, when the
// spec is first seen.
func warnOfApproval(d *draft) {
	a := d.Spec.Approval
	if a == nil || d.Kept || d.Release.Generation == d.Release.Status.ObservedGeneration ||
		d.Status.Phase == v1alpha1.PhaseCompleted || gates.Approves(&d.Position, a) {
		return
	}
	d.warn(v1alpha1.ReasonApprovalIgnored, fmt.Sprintf("it is for revision %s, commit %q; the release is %s, commit %q",
		a.Revision, a.Commit, d.Status.UpdateRevision, d.Status.UpdateCommit))
}
