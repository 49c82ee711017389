package view

import (
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// StepState is where a step stands.
type StepState string

// The states of a step.
const (
	StepDone    StepState = "done"
	StepMoving  StepState = "moving"  // its pods are under way
	StepWaiting StepState = "waiting" // it is at its gate
	StepAhead   StepState = "ahead"
	StepUnknown StepState = "unknown" // after a rollback
)

// Gate is what stands after a step.
type Gate string

// The gates.
const (
	GateApproval Gate = "approval"
	GateAnalysis Gate = "analysis"
	GatePause    Gate = "pause"
	GateNone     Gate = "none"
)

// WaitsFor is what the present step waits for.
type WaitsFor string

// The things that a step waits for.
const (
	WaitsForNothing  WaitsFor = ""
	WaitsForApproval WaitsFor = "approval"
	WaitsForAnalysis WaitsFor = "analysis"
	WaitsForRemedy   WaitsFor = "remedy" // its metrics have failed
	WaitsForPause    WaitsFor = "pause"
	WaitsForPods     WaitsFor = "pods"
	WaitsForResume   WaitsFor = "resume"
)

// Step is a step of the plan, and where it stands.
type Step struct {
	Index int32 `json:"index"`
	// Replicas is the field of the plan, and Target the number of pods that it makes.
	Replicas string    `json:"replicas"`
	Target   int32     `json:"target"`
	State    StepState `json:"state"`
	Gate     Gate      `json:"gate"`
	// PauseSeconds is the length of the pause of the gate.
	PauseSeconds int64 `json:"pauseSeconds,omitempty"`
	// Approval is who opened the gate.
	Approval *v1alpha1.StepApproval `json:"approval,omitempty"`
	// Updated and Available are pods of the step under way.
	Updated   int32    `json:"updated,omitempty"`
	Available int32    `json:"available,omitempty"`
	WaitsFor  WaitsFor `json:"waitsFor,omitempty"`
	// Until is when the pause ends.
	Until *time.Time `json:"until,omitempty"`

	// Plan is the step as the plan has it.
	Plan v1alpha1.Step `json:"-"`
}

// Steps returns the steps of the plan. During a rollback it returns those of the rollback.
func (s *Facts) Steps() []Step {
	steps := s.Release.Spec.Strategy.Steps
	if s.Release.Status.RollingBack {
		steps = plan.RollbackSteps(&s.Release.Spec.Strategy)
	}
	made := make([]Step, len(steps))
	for i := range steps {
		made[i] = s.step(int32(i), steps[i], i == len(steps)-1)
	}
	return made
}

func (s *Facts) step(i int32, step v1alpha1.Step, last bool) Step {
	at := &s.Release.Status
	made := Step{Index: i, Replicas: step.Replicas.String(), Target: plan.Limit(step.Replicas, at.Replicas), Plan: step, Gate: GateApproval}
	switch {
	case !at.RollingBack && step.Analysis != nil:
		made.Gate = GateAnalysis
	case at.RollingBack || last:
		made.Gate = GateNone
	case step.Pause != nil:
		made.Gate, made.PauseSeconds = GatePause, int64(step.Pause.Duration.Seconds())
	}
	switch {
	case s.RolledBack(): // the step that it had reached is not known any more
		made.State = StepUnknown
	case at.Phase == v1alpha1.PhaseCompleted || i < at.CurrentStepIndex:
		made.State, made.Approval = StepDone, s.opened(i, step.Replicas)
	case i > at.CurrentStepIndex || at.Phase == "":
		made.State = StepAhead
	default:
		made.State = StepMoving
		if at.CurrentStepState == v1alpha1.StepBlocking {
			made.State = StepWaiting
		}
		made.Updated, made.Available = at.UpdatedReplicas, at.UpdatedAvailableReplicas
		made.WaitsFor, made.Until = s.waits(step)
	}
	return made
}

// opened returns who opened the gate of a step that is done, or nil. An approval from before an
// edit of the plan may be of another step with the same number.
func (s *Facts) opened(i int32, replicas intstr.IntOrString) *v1alpha1.StepApproval {
	at := &s.Release.Status
	approvals := at.Approvals
	if at.Phase == v1alpha1.PhaseCompleted && len(at.History) > 0 && len(approvals) == 0 {
		if h := at.History[0]; h.Revision == at.UpdateRevision && h.Outcome == v1alpha1.OutcomeCompleted {
			approvals = h.Approvals
		}
	}
	for n := len(approvals) - 1; n >= 0; n-- { // a gate before a step that was raised is older
		if a := &approvals[n]; a.Step == i && (a.Replicas == nil || *a.Replicas == replicas) {
			return a
		}
	}
	return nil
}

// waits returns what the step under way waits for, and when a pause ends.
func (s *Facts) waits(step v1alpha1.Step) (WaitsFor, *time.Time) {
	at := &s.Release.Status
	switch {
	case s.Release.DeletionTimestamp != nil:
		return WaitsForNothing, nil
	case s.Release.Spec.Paused:
		return WaitsForResume, nil
	case at.CurrentStepState != v1alpha1.StepBlocking:
		return WaitsForNothing, nil
	case at.Reason == v1alpha1.ReasonUpgrading: // the Deployment has grown at the gate
		return WaitsForPods, nil
	case at.Reason == v1alpha1.ReasonAnalysisFailed:
		return WaitsForRemedy, nil
	case at.Reason == v1alpha1.ReasonWaitingForAnalysis, at.Reason == v1alpha1.ReasonAnalysisUnknown:
		return WaitsForAnalysis, nil
	case at.Reason == v1alpha1.ReasonWaitingForPause && step.Analysis != nil && at.StepStateTime != nil: // it only observes
		until := at.StepStateTime.Add(step.Analysis.Duration.Duration)
		return WaitsForPause, &until
	case step.Pause != nil && at.StepStateTime != nil:
		until := at.StepStateTime.Add(step.Pause.Duration.Duration)
		return WaitsForPause, &until
	}
	return WaitsForApproval, nil
}
