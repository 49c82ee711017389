package view

import (
	"time"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/simulation"
)

// assumedPodReady is the time that a pod is taken to need where the release has not shown
// it yet. It is the default of `tranche simulate`.
const assumedPodReady = 30 * time.Second

// Ahead is what the simulation of the plan says a release will do next.
type Ahead struct {
	// PodSeconds is the time that a batch is taken to need, and Measured reports whether
	// the release has shown it.
	PodSeconds int64    `json:"podSeconds"`
	Measured   bool     `json:"measured"`
	Moments    []Moment `json:"moments"`
}

// Moment is when a later step has its pods, or the release is complete.
type Moment struct {
	Step int32 `json:"step"`
	// Seconds after now. Approvals take no time in it: the page says where one is waited for.
	Seconds   int64 `json:"seconds"`
	Updated   int32 `json:"updated"`
	Stable    int32 `json:"stable"`
	Approvals int32 `json:"approvals"` // that have to be given until then
	Complete  bool  `json:"complete,omitempty"`
}

// Ahead simulates the rest of a release under way; nil: there is none, or it does not move.
func (s *Facts) Ahead() *Ahead {
	br, at := s.Release, &s.Release.Status
	switch {
	case at.Phase != v1alpha1.PhaseRollingUpdate || at.RollingBack || at.Replicas == 0 || br.DeletionTimestamp != nil || at.BeganFull:
		return nil
	case at.StepStateTime == nil || s.Deployment == nil || at.ObservedGeneration != br.Generation:
		return nil
	}
	switch at.Reason {
	case v1alpha1.ReasonUpgrading, v1alpha1.ReasonWaitingForApproval, v1alpha1.ReasonWaitingForPause, v1alpha1.ReasonReleasePaused,
		v1alpha1.ReasonWaitingForAnalysis:
	default: // the simulation has no such trouble
		return nil
	}
	ahead := &Ahead{}
	ready := podReady(s)
	if ahead.Measured = ready > 0; !ahead.Measured {
		ready = assumedPodReady
	}
	ahead.PodSeconds = int64(ready.Seconds())
	sim := simulation.Simulation{Plan: br.Spec.Strategy, Replicas: at.Replicas, PodReady: ready}
	if st := br.Spec.DeploymentStrategy; st != nil {
		sim.Strategy = *st
	}
	moments, err := sim.Run()
	if err != nil {
		return nil // the plan is refused, as the status says
	}
	ahead.Moments = rest(s, moments)
	return ahead
}

// podReady returns how long the last batch took to be available; 0: not known.
func podReady(s *Facts) time.Duration {
	at := &s.Release.Status
	if at.CurrentStepState != v1alpha1.StepBlocking || at.StepStateTime == nil {
		return 0
	}
	began := at.StartTime
	for i := range at.Approvals {
		if at.Approvals[i].Step == at.CurrentStepIndex-1 {
			began = &at.Approvals[i].Time
		}
	}
	if began == nil || at.CurrentStepIndex > 0 && began == at.StartTime {
		return 0
	}
	return max(time.Second, at.StepStateTime.Sub(began.Time))
}

// rest returns when each later step of the simulation has its pods, from now on.
func rest(s *Facts, moments []simulation.Moment) []Moment {
	at := &s.Release.Status
	blocking := at.CurrentStepState == v1alpha1.StepBlocking
	began, approvals := present(s, moments, blocking), int32(0)
	found := []Moment{}
	last := int32(-1)
	for _, m := range moments {
		complete := m.Reason == v1alpha1.ReasonReleaseCompleted
		if !complete && (!atGate(m) || m.Step == last) || m.Step < at.CurrentStepIndex {
			continue
		}
		last = m.Step
		if complete || m.Step > at.CurrentStepIndex || !blocking {
			found = append(found, Moment{
				Step: m.Step, Seconds: max(0, int64((m.At - began).Seconds())), Updated: m.Updated, Stable: m.Stable,
				Approvals: approvals, Complete: complete,
			})
		}
		if m.Reason == v1alpha1.ReasonWaitingForApproval {
			approvals++
		}
	}
	return found
}

func atGate(m simulation.Moment) bool {
	switch m.Reason {
	case v1alpha1.ReasonWaitingForApproval, v1alpha1.ReasonWaitingForPause, v1alpha1.ReasonWaitingForAnalysis:
		return true
	}
	return false
}

// present returns the time of the simulation that is now. At a gate that waits for an
// approval, the simulation stands still.
func present(s *Facts, moments []simulation.Moment, blocking bool) time.Duration {
	elapsed := s.Now.Sub(s.Release.Status.StepStateTime.Time)
	for _, m := range moments {
		switch {
		case m.Step != s.Release.Status.CurrentStepIndex:
		case !blocking || m.Reason == v1alpha1.ReasonWaitingForPause || m.Reason == v1alpha1.ReasonWaitingForAnalysis:
			return m.At + elapsed
		case m.Reason == v1alpha1.ReasonWaitingForApproval:
			return m.At
		}
	}
	return 0
}
