package gates

import (
	"fmt"
	"slices"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
	"github.com/tranche-dev/tranche/rollout/engine/position"
	"github.com/tranche-dev/tranche/rollout/engine/verdict"
)

// Analysis returns the analysis of the step that the release is at. It is nil without one, and
// while the release waits at a gate before the step.
func Analysis(p *position.Position) *v1alpha1.StepAnalysis {
	if p.Capped() {
		return nil
	}
	return position.StepAnalysis(p)
}

// OverrideOf returns the override that counts at the step: of this very release, for this step
// and for no other one (I11). An approval that is not an override is none.
func OverrideOf(p *position.Position) *v1alpha1.Override {
	a := p.Status.Approval
	if a == nil || a.Override == nil || isSpent(p, a) || !Approves(p, &a.Approval) || a.Step != p.Status.CurrentStepIndex ||
		!StepsUnchanged(p, a.Steps) {
		return nil
	}
	return a.Override
}

// Verdict returns the reason for which a release does not go on by what was measured, and what
// the plan wants then. The reason is empty if it may go on, as far as that is known.
func Verdict(p *position.Position) (reason string, policy v1alpha1.FailurePolicy) {
	s := p.Status.Analysis
	if s == nil || !position.Acts(p) {
		return "", ""
	}
	plan := p.Spec.Strategy.Analysis
	switch {
	case s.Verdict == v1alpha1.VerdictFail:
		policy = plan.OnFailure
		if policy == "" {
			policy = p.Spec.Strategy.OnFailure
		}
		return v1alpha1.ReasonAnalysisFailed, policy
	case s.Verdict == v1alpha1.VerdictUnknown && s.Reason == verdict.DeadlineExceeded:
		policy = v1alpha1.FailureHold
		if plan.OnUnknown == v1alpha1.UnknownRollback {
			policy = v1alpha1.FailureRollback
		}
		return v1alpha1.ReasonAnalysisUnknown, policy
	}
	return "", ""
}

// analysed: a gate with analysis opens on Pass, or on an override (I11). A step that wants an
// approval, too, leaves it to the next checks then.
func analysed(p *position.Position) *Gate {
	if !position.Acts(p) {
		return nil
	}
	if reason, _ := Verdict(p); reason != "" {
		return &Gate{Reason: reason, Message: p.Progress() + "; " + p.Status.Analysis.Message}
	}
	step, n := Analysis(p), p.Status.CurrentStepIndex
	if step == nil {
		return watched(p)
	}
	if p.Parked() {
		if overridesAll(p, step) {
			return &Gate{Open: true}
		}
		return &Gate{Reason: v1alpha1.ReasonWaitingForAnalysis,
			Message: fmt.Sprintf("%s; step %d has no pod with maxSurge 0 to measure; override it to go on", p.Progress(), n)}
	}
	s := p.Status.Analysis
	if s == nil || s.Verdict != v1alpha1.VerdictPass || s.Step != n {
		return &Gate{Reason: v1alpha1.ReasonWaitingForAnalysis,
			Message: fmt.Sprintf("%s; step %d%s", p.Progress(), n, Track(p).SoFar())}
	}
	if step.Approval {
		return nil
	}
	g := &Gate{Open: true, Reason: v1alpha1.ReasonAnalysisPassed, Message: fmt.Sprintf("step %d of %s: %s", n, p.Goal.Name, s.Message)}
	return g
}

// Passing is what to add on the values with which the step passes; empty: it does not.
func Passing(p *position.Position) string {
	if s := p.Status.Analysis; s != nil && s.Verdict == v1alpha1.VerdictPass && s.Step == p.Status.CurrentStepIndex {
		return "; " + s.Message
	}
	return ""
}

// watched: metrics in the background keep each gate closed until they pass. A step without pods
// measures nothing.
func watched(p *position.Position) *Gate {
	if p.Parked() || !position.AwaitsBackground(p) {
		return nil
	}
	says := ""
	if s := p.Status.Analysis; s != nil && s.Message != "" {
		says = ": " + s.Message
	}
	return &Gate{Reason: v1alpha1.ReasonWaitingForAnalysis,
		Message: fmt.Sprintf("%s; step %d waits for the metrics in the background%s", p.Progress(), p.Status.CurrentStepIndex, says)}
}

// overridesAll reports whether an override names all metrics of the step.
func overridesAll(p *position.Position, step *v1alpha1.StepAnalysis) bool {
	o := OverrideOf(p)
	if o == nil {
		return false
	}
	t := verdict.Track{Plan: p.Spec.Strategy.Analysis, Step: step}
	return !slices.ContainsFunc(t.StepMetrics(), func(name string) bool { return !slices.Contains(o.Metrics, name) })
}

// overridden adds the override that opened a gate to the approver. The event of the override then says
// what passes.
func overridden(p *position.Position, g *Gate) {
	by := OverriddenBy(p)
	if by == nil || !g.Open {
		return
	}
	if g.By.By == "" {
		g.By.By, g.By.Commit = by.By, by.Commit
	}
	g.By.Override, g.By.Reason = by.Override, by.Reason
	if g.Reason == v1alpha1.ReasonAnalysisPassed {
		g.Reason, g.Message = "", ""
	}
}

// OverriddenBy returns who let metrics of the step not count; nil if all do.
func OverriddenBy(p *position.Position) *v1alpha1.StepApproval {
	o := OverrideOf(p)
	if o == nil || !position.Acts(p) {
		return nil
	}
	a := p.Status.Approval
	return &v1alpha1.StepApproval{By: approver(a), Commit: a.ApprovedIn, Override: slices.Clone(o.Metrics), Reason: o.Reason}
}

// Track returns what follows the metrics of the release at its step.
func Track(p *position.Position) *verdict.Track {
	t := &verdict.Track{
		Plan: p.Spec.Strategy.Analysis, Status: p.Status.Analysis, Now: p.Now, Step: Analysis(p), Last: p.LastStep(),
	}
	if o := OverrideOf(p); o != nil {
		t.Overridden = o.Metrics
	}
	return t
}

// Measured names the release for measurements.
func Measured(p *position.Position) verdict.Release {
	r := verdict.Release{
		Key: verdict.Key{
			Namespace: p.Release.Namespace, Plan: p.Release.Name, Revision: p.Status.UpdateRevision, Commit: p.Status.UpdateCommit,
		},
		Account: p.Spec.ServiceAccountName, Deployment: p.Spec.WorkloadRef.Name,
		Update: nameOf(p.Goal), Stable: nameOf(p.Stable), StableRevision: p.Stable.Name,
	}
	if p.Status.StartTime != nil {
		r.Began = p.Status.StartTime.Unix()
	}
	return r
}

func nameOf(r *facts.Revision) string {
	if r.ReplicaSet == nil {
		return ""
	}
	return r.ReplicaSet.Name
}

// VerdictMessage explains a reason of [Verdict], with the values.
func VerdictMessage(p *position.Position, reason string) string {
	says := "fails"
	if reason == v1alpha1.ReasonAnalysisUnknown {
		says = "has had no verdict in time"
	}
	return fmt.Sprintf("analysis of %s at step %d %s: %s", p.Goal.Name, p.Status.CurrentStepIndex, says, p.Status.Analysis.Message)
}
