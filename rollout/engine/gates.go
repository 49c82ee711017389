package engine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// shortestCommit is how many characters of a commit name it.
const shortestCommit = 7

// gate is the answer of one check at a closed gate: open it, or wait and why.
type gate struct {
	open    bool
	by      v1alpha1.StepApproval
	reason  string
	message string
	wait    time.Duration
}

// check returns the answer of the first check that has one.
func check(p *position) gate {
	for _, of := range []func(*position) *gate{frozen, backwards, approvedInCluster, approvedInGit, pausing} {
		if g := of(p); g != nil {
			return *g
		}
	}
	return *unapproved(p)
}

// opensNow reports whether the gate opens by now without a pause to sit out.
func opensNow(p *position) bool {
	if frozen(p) != nil {
		return false
	}
	pause := p.steps()[p.status.CurrentStepIndex].Pause
	return backwards(p) != nil || approvedInCluster(p) != nil || approvedInGit(p) != nil || pause != nil && pause.Duration.Duration <= 0 && !p.capped()
}

// frozen: nothing opens while the plan is paused.
func frozen(p *position) *gate {
	if !p.spec.Paused {
		return nil
	}
	return &gate{reason: v1alpha1.ReasonReleasePaused, message: "the plan is paused; " + p.progress()}
}

// backwards: the gates of a rollback open as soon as the pods are available.
func backwards(p *position) *gate {
	if !p.status.RollingBack {
		return nil
	}
	return &gate{open: true}
}

// approvedInCluster: the step's state was written by a person, now or before its
// pods were available.
func approvedInCluster(p *position) *gate {
	given := p.status.CurrentStepState == v1alpha1.StepCompleted || p.status.RequestedApproval != nil && !p.spec.ReviewApprovals
	if !given || p.spec.RequireSignedApprovals {
		return nil
	}
	return &gate{
		open: true, by: v1alpha1.StepApproval{By: v1alpha1.ApprovedByCluster},
		reason: v1alpha1.ReasonStepApproved, message: fmt.Sprintf("step %d of %s, in the cluster", p.status.CurrentStepIndex, p.goal.name),
	}
}

// approvedInGit: the approval of this very release covers the step (I5). The step that
// the gate leads to is the one that was approved (I3).
func approvedInGit(p *position) *gate {
	a := p.status.Approval
	if a == nil || isSpent(p, a) || !approvesRelease(p, &a.Approval) || a.Step < p.status.CurrentStepIndex || !stepsUnchanged(p, a.Steps) {
		return nil
	}
	by := a.ApprovedBy
	if by == "" {
		by = "spec.approval"
	}
	return &gate{
		open: true, by: v1alpha1.StepApproval{By: by, Commit: a.ApprovedIn},
		reason: v1alpha1.ReasonStepApproved, message: fmt.Sprintf("step %d of %s, by %s%s", p.status.CurrentStepIndex, p.goal.name, by, inCommit(a.ApprovedIn)),
	}
}

// isSpent reports whether an approval has had its release: that has ended, by now or
// when the approval stood there already.
func isSpent(p *position, a *v1alpha1.ObservedApproval) bool {
	return a.Spent || slices.ContainsFunc(p.status.EndedReleases, func(ended v1alpha1.ReleaseName) bool {
		return ended.Commit == p.status.UpdateCommit // it has one template; a revision's name may change
	})
}

// stepsUnchanged reports whether the plan's steps, up to the one that the gate leads to,
// have the replicas of those that were approved.
func stepsUnchanged(p *position, approved []intstr.IntOrString) bool {
	steps := p.steps()
	last := min(int(p.status.CurrentStepIndex)+1, len(steps)-1)
	if len(approved) <= last {
		return false
	}
	for i := range last + 1 {
		if steps[i].Replicas != approved[i] {
			return false
		}
	}
	return true
}

func inCommit(commit string) string {
	if commit == "" {
		return ""
	}
	return " in commit " + commit
}

// approvesRelease reports whether an approval is for the release under way: revision and
// commit, at least seven characters of it. A release without a commit is
// approved without one.
func approvesRelease(p *position, a *v1alpha1.Approval) bool {
	if a.Revision != p.status.UpdateRevision {
		return false
	}
	if a.Commit == p.status.UpdateCommit {
		return true
	}
	return len(a.Commit) >= shortestCommit && strings.HasPrefix(p.status.UpdateCommit, a.Commit)
}

// pausing: a pause ends by itself.
func pausing(p *position) *gate {
	pause := p.steps()[p.status.CurrentStepIndex].Pause
	if pause == nil || p.capped() {
		return nil
	}
	left := pause.Duration.Duration
	if p.status.StepStateTime != nil {
		left -= p.now.Sub(p.status.StepStateTime.Time)
	}
	if left <= 0 {
		return &gate{open: true, reason: v1alpha1.ReasonPauseElapsed, message: fmt.Sprintf("step %d of %s, after %s", p.status.CurrentStepIndex, p.goal.name, pause.Duration.Duration)}
	}
	until := p.now.Add(left).UTC().Format(time.TimeOnly)
	return &gate{reason: v1alpha1.ReasonWaitingForPause, message: fmt.Sprintf("%s; step %d goes on at %s UTC", p.progress(), p.status.CurrentStepIndex, until), wait: left}
}

// unapproved: the step waits for an approval.
func unapproved(p *position) *gate {
	step, next := int(p.status.CurrentStepIndex), beyondGate(p)
	if a := p.status.Approval; a != nil && approvesRelease(p, &a.Approval) && a.Step >= p.status.CurrentStepIndex {
		why := "the approval was given for other steps; give it again"
		if isSpent(p, a) {
			why = "this release has ended before, and its approval with it; bring the change by a new commit"
		}
		return &gate{reason: v1alpha1.ReasonWaitingForApproval, message: fmt.Sprintf("%s; step %d goes on to %s when it is approved: %s", p.progress(), step, next, why)}
	}
	if p.status.RequestedApproval != nil {
		return &gate{reason: v1alpha1.ReasonWaitingForReview, message: fmt.Sprintf("%s; step %d was approved in the cluster, and goes on to %s when Git says so", p.progress(), step, next)}
	}
	if p.parked() {
		return &gate{reason: v1alpha1.ReasonWaitingForApproval, message: fmt.Sprintf("%s; step %d has no pod with maxSurge 0; approve it to go on to step %d", p.progress(), step, leadsTo(p))}
	}
	return &gate{reason: v1alpha1.ReasonWaitingForApproval, message: fmt.Sprintf("%s; approve step %d to go on to %s", p.progress(), step, next)}
}

// beyondGate says how many pods are to run the update revision once the gate opens.
// After an edit of the plan that may be fewer than run it now. An approval before a
// step that was raised is one of the step's own gate, too.
func beyondGate(p *position) string {
	step := leadsTo(p)
	goal := opensTo(p, step)
	says := strconv.Itoa(int(goal))
	if goal < size(p.goal.rs) {
		says += ", fewer than run it now"
	}
	if p.capped() && step < len(p.steps())-1 {
		says += fmt.Sprintf(", and then to %d", opensTo(p, step+1))
	}
	return says
}

// opensTo returns how many pods run the update revision at a step whose gate has opened.
func opensTo(p *position, step int) int32 {
	after := *p
	after.status.OpenedReplicas, after.status.CurrentStepIndex = p.openTo(step), int32(step)
	goal, _ := after.target(step)
	return goal
}

// leadsTo returns the step that the gate leads to.
func leadsTo(p *position) int {
	if p.capped() {
		return int(p.status.CurrentStepIndex)
	}
	return int(p.status.CurrentStepIndex) + 1
}
