package position

import (
	"fmt"
	"math"
	"slices"
	"time"

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
	had := had(p)
	_, unavailable, err := plan.Bounds(&p.Strategy, had)
	if err != nil {
		unavailable = 0
	}
	return p.GoalPods().Available < had-max(0, min(unavailable, had-1))
}

// LacksPods reports whether a step that had its pods has fewer of them left, however many.
func LacksPods(p *Position) bool { return p.GoalPods().Available < had(p) }

// had is how many pods the step had, or wants now if that is less.
func had(p *Position) int32 {
	target, _ := p.Target(int(p.Status.CurrentStepIndex))
	return min(p.Status.CurrentStepTarget, target)
}

// LostSeconds is the total time that a step has lacked pods that it had, now that it has
// them again. A loss that outlasts the deadline was the cluster's, and does not count: else
// the release had failed.
func LostSeconds(p *Position) int32 {
	if p.Status.CurrentStepState != v1alpha1.StepUpgrade || p.Status.CurrentStepTarget == 0 || p.Status.StepStateTime == nil {
		return p.Status.CurrentStepLostSeconds
	}
	lost := time.Duration(p.Status.CurrentStepLostSeconds)*time.Second + p.Now.Sub(p.Status.StepStateTime.Time)
	if lost >= p.DeadlineLength() {
		return 0
	}
	return int32(min(lost/time.Second+1, math.MaxInt32))
}

// PlacedLate reports whether all pods that fail got their nodes less than half a deadline
// ago. Until then the cluster kept them away. The deadline then starts again. They have had
// their nodes in its first half the next time.
func PlacedLate(p *Position) bool {
	return p.Pods != nil && !p.Pods.PlacedTime.IsZero() && p.Now.Sub(p.Pods.PlacedTime) < p.DeadlineLength()/2
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
