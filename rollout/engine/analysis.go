package engine

import (
	"cmp"
	"fmt"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/gates"
	"github.com/tranche-dev/tranche/rollout/engine/position"
	"github.com/tranche-dev/tranche/rollout/engine/verdict"
)

// followAnalysis records what was measured, and judges it by the plan of now. It opens no gate
// and moves nothing. All that was measured of a release is forgotten with it, and with the
// plan's analysis. A rollback measures nothing, nor does a release that began with all pods.
func followAnalysis(d *draft) {
	t := trackOf(d)
	if t == nil {
		d.Status.Analysis = nil
		return
	}
	t.Arrange()
	t.Follow(d.Measured, gates.Measured(&d.Position))
	if wake := t.Wake(); !wake.IsZero() {
		d.analysisWait = wake.Sub(d.Now)
	}
}

// beginAnalysis begins the windows of the step at its gate: from when its pods are available.
// Those of the background begin with the first step.
func beginAnalysis(d *draft) {
	t := trackOf(d)
	if t == nil || d.Parked() || d.Status.StepStateTime == nil {
		return
	}
	if t.Begin(d.Status.StepStateTime.Time) {
		followAnalysis(d)
	}
}

// rolledBackByVerdict goes back to the stable revision if the verdict and the plan say so. A
// paused plan measures and does not act, nor does one of mode Observe.
func rolledBackByVerdict(d *draft) bool {
	reason, policy := gates.Verdict(&d.Position)
	if reason == "" || d.Spec.Paused || policy != v1alpha1.FailureRollback {
		return false
	}
	message := gates.VerdictMessage(&d.Position, reason)
	d.warn(reason, message)
	failRelease(d, message)
	return true
}

// stalledByVerdict stops the release at a verdict that the plan does not roll back for. Until
// its step is done it goes on without a verdict: that opens no gate.
func stalledByVerdict(d *draft) bool {
	reason, _ := gates.Verdict(&d.Position)
	atGate := d.Status.CurrentStepState == v1alpha1.StepBlocking
	if reason == "" || d.Spec.Paused || reason == v1alpha1.ReasonAnalysisUnknown && !atGate {
		return false
	}
	message := gates.VerdictMessage(&d.Position, reason)
	if d.Release.Status.Reason != reason {
		d.warn(reason, message)
	}
	remedy := "; override it, change the plan, revert, or bring another commit"
	if reason == v1alpha1.ReasonAnalysisUnknown {
		remedy = "; it goes on by itself once it is measured, or override it"
	}
	d.stall(reason, message+remedy)
	return true
}

// overrideEvent names the metrics that did not count at an open gate.
func overrideEvent(d *draft, by *v1alpha1.StepApproval) {
	if len(by.Override) > 0 {
		d.event(v1alpha1.ReasonAnalysisOverridden, fmt.Sprintf("step %d of %s: %s did not count, by %s: %s%s", by.Step, d.Goal.Name,
			plan.JoinNames(by.Override), cmp.Or(by.By, "spec.approval"), by.Reason, gates.Passing(&d.Position)))
	}
}

// passAnalysis notes that the last step has passed: it ends the release.
func passAnalysis(d *draft) {
	if !position.Acts(&d.Position) || gates.Analysis(&d.Position) == nil {
		return
	}
	position.TimeStep(&d.Status, d.Time(), true)
	if by := gates.OverriddenBy(&d.Position); by != nil {
		position.NoteApproval(&d.Position, by, d.Time())
		overrideEvent(d, by)
		return
	}
	d.event(v1alpha1.ReasonAnalysisPassed,
		fmt.Sprintf("step %d of %s: %s", d.Status.CurrentStepIndex, d.Goal.Name, d.Status.Analysis.Message))
}

// deferToAnalysis is about an approval given in the cluster at a gate that needs a verdict. It
// does not override, and counts only where the step wants an approval, too.
func deferToAnalysis(d *draft) {
	step := gates.Analysis(&d.Position)
	if step == nil || !position.Acts(&d.Position) || d.Status.CurrentStepState != v1alpha1.StepCompleted || d.Status.RollingBack {
		return
	}
	d.Status.CurrentStepState = v1alpha1.StepBlocking
	if step.Approval {
		d.request(v1alpha1.ReasonStepApproved, "; the gate opens once its metrics pass")
		return
	}
	d.warn(v1alpha1.ReasonApprovalIgnored, fmt.Sprintf("step %d of %s opens when its metrics pass; commit an override to let it go on "+
		"without", d.Status.CurrentStepIndex, d.Goal.Name))
}

// missingMeasurements lists the measurements whose answers are missing.
func missingMeasurements(d *draft) []Measurement {
	if d.Deployment == nil || d.Goal == nil || d.Status.Analysis == nil {
		return nil
	}
	if t := trackOf(d); t != nil {
		return t.Missing(gates.Measured(&d.Position))
	}
	return nil
}

// trackOf returns what follows the metrics of the release; nil if nothing is measured. Its status
// is that of the draft.
func trackOf(d *draft) *verdict.Track {
	if !position.Analysed(&d.Position) {
		return nil
	}
	if d.Status.Analysis == nil {
		d.Status.Analysis = &v1alpha1.AnalysisStatus{}
	}
	d.Status.Analysis.Step = d.Status.CurrentStepIndex
	return gates.Track(&d.Position)
}
