package position

import "github.com/tranche-dev/tranche/plan/v1alpha1"

// Analysed reports whether anything is measured of the release. A rollback is not, nor a
// release that began with all pods.
func Analysed(p *Position) bool {
	return p.Spec.Strategy.Analysis != nil && p.Goal != nil && p.Forward() && !p.Status.RollingBack && !p.beganFull()
}

// Acts reports whether gates depend on what is measured.
func Acts(p *Position) bool {
	return Analysed(p) && p.Spec.Strategy.Analysis.Mode != v1alpha1.AnalysisObserve
}

// StepAnalysis returns the analysis of the step that the release is at; nil without one.
func StepAnalysis(p *Position) *v1alpha1.StepAnalysis {
	i := int(p.Status.CurrentStepIndex)
	if !Analysed(p) || i < 0 || i >= len(p.Spec.Strategy.Steps) {
		return nil
	}
	return p.Spec.Strategy.Steps[i].Analysis
}

// AwaitsBackground reports whether metrics in the background have not passed. No gate opens by a
// pause or an approval then, and the last step does not end: an Unknown moves no pod (I13).
func AwaitsBackground(p *Position) bool {
	s := p.Status.Analysis
	return Acts(p) && len(p.Spec.Strategy.Analysis.Background) > 0 && (s == nil || s.Verdict != v1alpha1.VerdictPass)
}

// AwaitsVerdict reports whether the last step is not to be ended yet: its analysis has not
// passed, or a metric in the background has not. Until then one other pod stays, if there may
// be one. With only the goal active the native controller would bring the goal to a new N by
// itself (H26).
func (p *Position) AwaitsVerdict() bool {
	last := len(p.Spec.Strategy.Steps) - 1
	s := p.Status.Analysis
	switch {
	case !Acts(p) || int(p.Status.CurrentStepIndex) < last:
		return false
	case StepAnalysis(p) == nil:
		return p.fails() || AwaitsBackground(p)
	}
	return s == nil || s.Verdict != v1alpha1.VerdictPass || s.Step != p.Status.CurrentStepIndex || s.StartTime == nil
}

// fails reports whether what was measured keeps the release from growing.
func (p *Position) fails() bool {
	return p.Status.Analysis != nil && p.Status.Analysis.Verdict == v1alpha1.VerdictFail && Acts(p)
}
