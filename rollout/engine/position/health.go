package position

import (
	"fmt"
	"slices"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Recovered reports whether a step that has missed its deadline can go on. All of its
// pods are then available again, and only the deadline keeps it from moving.
func Recovered(p *Position) bool {
	g := NewSet(*p.Goal)
	if p.Spec.Paused || p.Status.RollingBack || !g.Observed || g.Clamp().Available < g.Size {
		return false
	}
	return !slices.Equal(p.Next(p.Shares(false)), p.Next(p.Shares(true)))
}

// LostPods reports whether a step that had its pods has too few of them left. The measure is
// the number that was wanted then, or is now if that is less. A step has too few if fewer
// are available than that number less its maxUnavailable.
func LostPods(p *Position) bool {
	target, _ := p.Target(int(p.Status.CurrentStepIndex))
	had := min(p.Status.CurrentStepTarget, target)
	_, unavailable, err := plan.Bounds(&p.Strategy, had)
	if err != nil {
		unavailable = 0
	}
	g := NewSet(*p.Goal)
	return g.Clamp().Available < had-max(0, min(unavailable, had-1))
}

// PlacedLate reports whether all pods that fail got their nodes in the second half of the
// time that the step has had. Until then the cluster kept them away. The deadline then
// starts again. They have had their nodes in its first half the next time.
func PlacedLate(p *Position) bool {
	if p.Pods == nil || p.Pods.PlacedTime.IsZero() || p.Status.ProgressTime == nil {
		return false
	}
	waited := p.Pods.PlacedTime.Sub(p.Status.ProgressTime.Time)
	return p.Now.Sub(p.Pods.PlacedTime) < waited
}

// Labelled reports whether a Deployment that is as it was released has the label of a hold.
// Another user has put it there: the controller ends a hold in one write.
func Labelled(p *Position) bool {
	return p.Status.Phase == v1alpha1.PhaseCompleted && v1alpha1.HasHeld(p.Deployment.Labels) && p.Native() &&
		!p.Forward() && !p.Failed() && p.Goal.Equal(&p.Deployment.Spec.Template)
}

// ReasonUnderWay is the reason while pods are on their way.
func ReasonUnderWay(p *Position) string {
	if p.Status.RollingBack {
		return v1alpha1.ReasonRollingBack
	}
	return v1alpha1.ReasonUpgrading
}

// MissedMessage says that the step has missed its deadline.
func MissedMessage(p *Position) string {
	return fmt.Sprintf("step %d made no progress in time: %s", p.Status.CurrentStepIndex, p.Progress())
}

// Purpose says what a move is for.
func Purpose(p *Position) string {
	if p.Status.RollingBack {
		return "rolling back to " + p.Goal.Name
	}
	goal, _ := p.Target(int(p.Status.CurrentStepIndex))
	return fmt.Sprintf("step %d: %d of %d run %s", p.Status.CurrentStepIndex, goal, p.Replicas, p.Goal.Name)
}
