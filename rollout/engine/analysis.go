package engine

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
	"github.com/tranche-dev/tranche/rollout/engine/gates"
	"github.com/tranche-dev/tranche/rollout/engine/position"
	"github.com/tranche-dev/tranche/rollout/engine/verdict"
)

// followAnalysis records what was measured, and judges it by the plan of now. It opens no gate
// and moves nothing. What is measured of a release is forgotten with it, and with the plan's
// analysis. A rollback measures nothing, nor does a release that began with all pods.
func followAnalysis(d *draft) {
	t := track(d)
	if t == nil {
		d.Status.Analysis = nil
		return
	}
	t.Arrange()
	t.Follow(d.Measured, measured(d))
	if wake := t.Wake(); !wake.IsZero() {
		d.analysisWait = wake.Sub(d.Now)
	}
}

// track returns what follows the metrics of the release; nil where nothing is measured. Its
// status is that of the draft.
func track(d *draft) *verdict.Track {
	if !position.Analysed(&d.Position) {
		return nil
	}
	if d.Status.Analysis == nil {
		d.Status.Analysis = &v1alpha1.AnalysisStatus{}
	}
	d.Status.Analysis.Step = d.Status.CurrentStepIndex
	t := &verdict.Track{Plan: d.Spec.Strategy.Analysis, Status: d.Status.Analysis, Now: d.Now, Step: gates.Analysis(&d.Position), Last: d.LastStep()}
	if o := gates.OverrideOf(&d.Position); o != nil {
		t.Overridden = o.Metrics
	}
	return t
}

// measured names the release for measurements.
func measured(d *draft) verdict.Release {
	r := verdict.Release{
		Key: verdict.Key{
			Namespace: d.Release.Namespace, Plan: d.Release.Name, Revision: d.Status.UpdateRevision, Commit: d.Status.UpdateCommit,
		},
		Account: d.Spec.ServiceAccountName, Deployment: d.Spec.WorkloadRef.Name,
		Update: nameOf(d.Goal), Stable: nameOf(d.Stable), StableRevision: d.Stable.Name,
	}
	if d.Status.StartTime != nil {
		r.Began = d.Status.StartTime.Unix()
	}
	return r
}

func nameOf(r *facts.Revision) string {
	if r.ReplicaSet == nil {
		return ""
	}
	return r.ReplicaSet.Name
}

// missingMeasurements lists the measurements whose answers are missing.
func missingMeasurements(d *draft) []Measurement {
	if d.Deployment == nil || d.Goal == nil || d.Status.Analysis == nil {
		return nil
	}
	t := track(d)
	if t == nil {
		return nil
	}
	var list []Measurement
	for i := range t.Status.Metrics {
		if m := t.Next(&t.Status.Metrics[i], measured(d)); m != nil {
			list = append(list, *m)
		}
	}
	return list
}

// beginAnalysis begins the windows of the step at its gate: from when its pods are available.
// Those of the background begin with the first step.
func beginAnalysis(d *draft) {
	t := track(d)
	if t == nil || d.Parked() || d.Status.StepStateTime == nil {
		return
	}
	began := false
	if t.Status.BackgroundStartTime == nil && len(t.Plan.Background) > 0 {
		t.Status.BackgroundStartTime, began = wholeSecond(d.Now), true
	}
	if t.Step != nil && t.Status.StartTime == nil {
		t.Status.StartTime = wholeSecond(d.Status.StepStateTime.Time)
		t.Status.Round++
		began = true
	}
	if began {
		followAnalysis(d)
	}
}

// wholeSecond returns a time as the API server keeps it. A window that is counted from a fraction
// of a second would be another one after a restart.
func wholeSecond(t time.Time) *metav1.Time { return &metav1.Time{Time: t.Truncate(time.Second)} }

// endStepAnalysis forgets what was measured for the step: its windows begin again if it begins
// again. Background metrics go on.
func endStepAnalysis(d *draft) {
	s := d.Status.Analysis
	if s == nil {
		return
	}
	s.StartTime, s.Verdict, s.Reason, s.Message = nil, "", "", ""
	s.Metrics = slices.DeleteFunc(s.Metrics, func(m v1alpha1.MetricStatus) bool { return !m.Background })
	if len(s.Metrics) == 0 {
		s.Metrics = nil
	}
}

// recordVerdicts puts the verdicts of the step in place of those of earlier steps.
func recordVerdicts(d *draft) {
	s := d.Status.Analysis
	if s == nil {
		return
	}
	for i := range s.Metrics {
		st := &s.Metrics[i]
		var metric *v1alpha1.Metric
		if a := d.Spec.Strategy.Analysis; a != nil {
			metric = (&verdict.Track{Plan: a}).Metric(st.Name)
		}
		at := slices.IndexFunc(s.Records, func(r v1alpha1.MetricRecord) bool { return r.Name == st.Name && r.Background == st.Background })
		if at < 0 {
			s.Records = append(s.Records, verdict.NewRecord(metric, st, s.Step, nil))
			continue
		}
		s.Records[at] = verdict.NewRecord(metric, st, s.Step, &s.Records[at])
	}
}

// analysisRecords are the last verdicts of the release's metrics, for the history.
func analysisRecords(d *draft) []v1alpha1.MetricRecord {
	recordVerdicts(d)
	if d.Status.Analysis == nil {
		return nil
	}
	records := slices.Clone(d.Status.Analysis.Records)
	for i := range records {
		records[i].StableTotal, records[i].StableValues = "", nil
	}
	return records
}

// rolledBackByVerdict goes back to the stable revision if the verdict and the plan say so. A
// paused plan measures and does not act, nor does one of mode Observe.
func rolledBackByVerdict(d *draft) bool {
	reason, policy := gates.Verdict(&d.Position)
	if reason == "" || d.Spec.Paused || policy != v1alpha1.FailureRollback {
		return false
	}
	message := verdictMessage(d, reason)
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
	message := verdictMessage(d, reason)
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

func verdictMessage(d *draft, reason string) string {
	says := "fails"
	if reason == v1alpha1.ReasonAnalysisUnknown {
		says = "has had no verdict in time"
	}
	return fmt.Sprintf("analysis of %s at step %d %s: %s", d.Goal.Name, d.Status.CurrentStepIndex, says, d.Status.Analysis.Message)
}

// restartOverridden has background metrics that did not count at a step start again: what they
// measured there says nothing of the next one.
func restartOverridden(d *draft) {
	s, o := d.Status.Analysis, gates.OverrideOf(&d.Position)
	if s == nil || o == nil {
		return
	}
	for i := range s.Metrics {
		if m := &s.Metrics[i]; m.Background && slices.Contains(o.Metrics, m.Name) {
			*m = v1alpha1.MetricStatus{Name: m.Name, Background: true, SpecHash: m.SpecHash, Next: max(1, m.Next)}
		}
	}
}

// overrideEvent names the metrics that did not count at an open gate.
func overrideEvent(d *draft, by *v1alpha1.StepApproval) {
	if len(by.Override) > 0 {
		d.event(v1alpha1.ReasonAnalysisOverridden, fmt.Sprintf("step %d of %s: %s did not count, by %s: %s", by.Step, d.Goal.Name,
			plan.JoinNames(by.Override), cmp.Or(by.By, "spec.approval"), by.Reason))
	}
}

// passAnalysis notes that the last step has passed: it ends the release.
func passAnalysis(d *draft) {
	if !position.Acts(&d.Position) || gates.Analysis(&d.Position) == nil {
		return
	}
	d.event(v1alpha1.ReasonAnalysisPassed, fmt.Sprintf("step %d of %s: %s", d.Status.CurrentStepIndex, d.Goal.Name, d.Status.Analysis.Message))
	if by := gates.OverriddenBy(&d.Position); by != nil {
		by.Step, by.Time = d.Status.CurrentStepIndex, *d.Time()
		d.Status.Approvals = append(d.Status.Approvals, *by)
		overrideEvent(d, by)
	}
}

// parkAnalysis forgets what is measured while the step has no pods. The records of earlier
// steps stay.
func parkAnalysis(d *draft) {
	endStepAnalysis(d)
	if s := d.Status.Analysis; s != nil {
		s.Metrics, s.BackgroundStartTime = nil, nil
	}
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

// analysisClocks are the times from which verdicts are counted: all of them, or those of
// unknownDeadlineSeconds alone. The windows keep their places while no controller runs.
func analysisClocks(s *v1alpha1.BatchReleaseStatus, all bool) []**metav1.Time {
	if s.Analysis == nil {
		return nil
	}
	var clocks []**metav1.Time
	if all {
		clocks = append(clocks, &s.Analysis.StartTime, &s.Analysis.BackgroundStartTime)
	}
	for i := range s.Analysis.Metrics {
		clocks = append(clocks, &s.Analysis.Metrics[i].UnknownTime)
	}
	return clocks
}
