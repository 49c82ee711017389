package view

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Release is all that is shown of a release.
type Release struct {
	Row
	Images   []Image `json:"images,omitempty"`
	Plan     []Step  `json:"plan"`
	Sets     []Set   `json:"sets"`
	Held     *bool   `json:"held,omitempty"` // nil: not known, since the Deployment is missing or may not be read
	Next     Next    `json:"next"`
	Failed   string  `json:"failed,omitempty"`
	Deletion string  `json:"deletion,omitempty"`
	// NewerCommit is a commit that has come, and whose release has not begun.
	NewerCommit string `json:"newerCommit,omitempty"`
	// Missing says what of the release could not be read: source, workload, events.
	Missing  []string   `json:"missing,omitempty"`
	Git      *SourceRow `json:"git,omitempty"`
	Analysis *Analysis  `json:"analysis,omitempty"`
	History  []Record   `json:"history,omitempty"`
	Events   []Event    `json:"events,omitempty"`
	Ahead    *Ahead     `json:"ahead,omitempty"`
}

// Set is a ReplicaSet of the Deployment.
type Set struct {
	Name     string `json:"name"`
	Revision string `json:"revision"`
	// Role is update, stable or other.
	Role string `json:"role"`
	// Want is the size, Pods how many there are, and Available how many of them are.
	Want      int32 `json:"want"`
	Pods      int32 `json:"pods"`
	Ready     int32 `json:"ready"`
	Available int32 `json:"available"`
}

// Record is a release that has ended.
type Record struct {
	Revision  string                  `json:"revision"`
	Commit    string                  `json:"commit,omitempty"`
	Outcome   string                  `json:"outcome"`
	Rollback  bool                    `json:"rollback,omitempty"`
	Start     *metav1.Time            `json:"start,omitempty"`
	End       *metav1.Time            `json:"end,omitempty"`
	Approvals []v1alpha1.StepApproval `json:"approvals,omitempty"`
	// StepTimes has the times of the steps that had their pods. A gate without an end is one
	// at which the release waits, or at which it ended.
	StepTimes []v1alpha1.StepTimes `json:"stepTimes,omitempty"`
	// Analysis has the last verdict of each metric.
	Analysis []Evidence `json:"analysis,omitempty"`
}

// Event is an event of the release or its source.
type Event struct {
	Time    metav1.Time `json:"time"`
	Type    string      `json:"type"`
	Kind    string      `json:"kind"`
	Reason  string      `json:"reason"`
	Message string      `json:"message"`
	Count   int32       `json:"count"`
}

// NewRelease returns the document of a release.
func NewRelease(s *Facts) *Release {
	br := s.Release
	r := &Release{
		Row: NewRow(br), Images: s.Images(), Plan: s.Steps(), Sets: []Set{}, Next: s.Next(),
		Failed: br.Status.FailedRevision, Deletion: cli.DeletionOf(br), Analysis: s.Analysis(), Ahead: s.Ahead(),
	}
	if commit := cli.CommitOf(br); commit != "" && commit != br.Spec.Commit {
		r.NewerCommit = br.Spec.Commit
	}
	if s.Deployment != nil {
		held := v1alpha1.HasHeld(s.Deployment.Labels)
		r.Held = &held
	}
	for _, rs := range s.Sets {
		r.Sets = append(r.Sets, s.newSet(rs))
	}
	if s.Source != nil {
		row := NewSourceRow(s.Source)
		r.Git = &row
	}
	if at := &br.Status; at.Phase != "" && at.Phase != v1alpha1.PhaseCompleted {
		r.History = append(r.History, Record{
			Revision: at.UpdateRevision, Commit: at.UpdateCommit, Outcome: "UnderWay", Rollback: at.RollingBack,
			Start: at.StartTime, Approvals: at.Approvals, StepTimes: TimesOf(at),
		})
	}
	for i := range br.Status.History {
		h := &br.Status.History[i]
		r.History = append(r.History, Record{
			h.Revision, h.Commit, string(h.Outcome), h.Rollback, h.StartTime, &h.EndTime, h.Approvals, h.StepTimes, EvidenceOf(h.Analysis),
		})
	}
	return r
}

// TimesOf returns the times of the steps of a release under way, with the gate at which it waits.
func TimesOf(at *v1alpha1.BatchReleaseStatus) []v1alpha1.StepTimes {
	times := slices.Clone(at.StepTimes)
	if at.CurrentStepState == v1alpha1.StepBlocking && at.StepStateTime != nil && at.Phase == v1alpha1.PhaseRollingUpdate {
		times = append(times, v1alpha1.StepTimes{Step: at.CurrentStepIndex, AvailableTime: *at.StepStateTime})
	}
	return times
}

// AtGates returns how long a release that ended has been at its gates.
func AtGates(times []v1alpha1.StepTimes, end time.Time) (length time.Duration) {
	for i := range times {
		until := end
		if open := times[i].OpenTime; open != nil {
			until = open.Time
		}
		length += max(0, until.Sub(times[i].AvailableTime.Time))
	}
	return length
}

func (s *Facts) newSet(rs *appsv1.ReplicaSet) Set {
	set := Set{
		Name: rs.Name, Revision: rs.Labels[appsv1.DefaultDeploymentUniqueLabelKey], Role: s.Role(rs),
		Pods: rs.Status.Replicas, Ready: rs.Status.ReadyReplicas, Available: rs.Status.AvailableReplicas,
	}
	if set.Role == "" {
		set.Role = "other"
	}
	if rs.Spec.Replicas != nil {
		set.Want = *rs.Spec.Replicas
	}
	return set
}

// NewEvent returns an event with the time of its last occurrence.
func NewEvent(e *eventsv1.Event) Event {
	made := Event{
		Time: metav1.NewTime(e.EventTime.Time), Type: e.Type, Kind: e.Regarding.Kind, Reason: e.Reason, Message: e.Note, Count: 1,
	}
	switch {
	case e.Series != nil:
		made.Time, made.Count = metav1.NewTime(e.Series.LastObservedTime.Time), e.Series.Count
	case !e.DeprecatedLastTimestamp.IsZero():
		made.Time, made.Count = e.DeprecatedLastTimestamp, max(1, e.DeprecatedCount)
	case made.Time.IsZero():
		made.Time = e.CreationTimestamp
	}
	return made
}
