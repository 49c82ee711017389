package position

import (
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
	"github.com/tranche-dev/tranche/rollout/engine/rolling"
)

// IsDrift reports whether a native Deployment is to be changed to what was released last.
func IsDrift(p *Position) bool {
	switch s := &p.Status; {
	case p.Touched() || p.Failed():
		return false
	case p.Idle():
		return p.IsNativeDrift()
	case s.Phase == v1alpha1.PhaseCompleted:
		return !p.Forward()
	default:
		return p.Spec.Paused && p.UnderWay() && s.CurrentStepState == v1alpha1.StepInitial && !p.Stable.Equal(&p.Deployment.Spec.Template)
	}
}

// Counted returns the revision whose pods are Counted. It is the goal or, in a round that
// has resolved none, the revision that the status names.
func Counted(p *Position) *facts.Revision {
	switch {
	case p.Deployment == nil || p.Rival != "":
		return nil
	case p.Goal != nil:
		return p.Goal
	case p.Status.UpdateTemplateDigest == "":
		return nil
	}
	if record := p.RecordSent(p.Status.UpdateTemplateDigest); record != nil {
		return facts.RevisionOfRecord(p.Observed, record)
	}
	return nil
}

// StepDone reports whether the step's pods are available, and at the last step
// whether all others are gone.
func StepDone(p *Position, sets []Set) bool {
	goal, others := p.Target(int(p.Status.CurrentStepIndex))
	if p.LastStep() && !p.AwaitsVerdict() && rolling.Total(Numbers(sets[1:])) > 0 {
		return false
	}
	if !p.Forward() {
		goal = max(goal, p.Replicas-others)
	}
	g := sets[0]
	return g.Size >= goal && g.Observed && g.Clamp().Available >= goal
}
