package gates

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
	"github.com/tranche-dev/tranche/rollout/engine/position"
)

// shortestCommit is how many characters of a commit name it.
const shortestCommit = 7

// Gate is the answer of one check at a closed gate: open it, or wait and why.
type Gate struct {
	Open    bool
	By      v1alpha1.StepApproval
	Reason  string
	Message string
	Wait    time.Duration
	// NeedsReady: it opens if the pods of the step are ready, by the pods themselves.
	NeedsReady bool
}

// Check returns the answer of the first check that has one.
func Check(p *position.Position) Gate {
	for _, of := range []func(*position.Position) *Gate{frozen, backwards, analysed, approvedInCluster, ApprovedInGit, pausing} {
		if g := of(p); g != nil {
			overridden(p, g)
			return ready(p, g)
		}
	}
	return *unapproved(p)
}

// readyInterval is when to look again at pods that are not as their ReplicaSet says.
const readyInterval = 5 * time.Second

// ready keeps a gate closed while fewer pods are ready than their ReplicaSet says. Its status
// may be old: the ReplicaSet controller is away, or this one has not read on. The pods of the
// stable revision would be taken away for pods that are not there. A way back does not ask.
func ready(p *position.Position, g *Gate) Gate {
	if !g.Open || p.Status.RollingBack || p.LastStep() {
		return *g
	}
	if p.Ready == nil {
		g.NeedsReady = true
		return *g
	}
	goal, _ := p.Target(int(p.Status.CurrentStepIndex))
	if *p.Ready >= goal {
		return *g
	}
	return Gate{Reason: position.ReasonUnderWay(p), Wait: readyInterval, Message: fmt.Sprintf(
		"%s, and %d of these pods are ready; the status of ReplicaSet %s does not say so yet", p.Progress(), *p.Ready, p.Goal.ReplicaSet.Name)}
}

// OpensNow reports whether the gate opens by now without a pause to sit out.
func OpensNow(p *position.Position) bool {
	if frozen(p) != nil {
		return false
	}
	if backwards(p) != nil {
		return true
	}
	if g := analysed(p); g != nil {
		return g.Open
	}
	pause := pauseOf(p)
	return approvedInCluster(p) != nil || ApprovedInGit(p) != nil ||
		pause != nil && pause.Duration.Duration <= 0 && !p.Capped()
}

// frozen: nothing opens while the plan is paused. The pause of the step goes on, and the message
// says what that means for the gate.
func frozen(p *position.Position) *Gate {
	if !p.Spec.Paused {
		return nil
	}
	g := &Gate{Reason: v1alpha1.ReasonReleasePaused, Message: "the plan is paused; " + p.Progress()}
	for _, of := range []func(*position.Position) *Gate{backwards, analysed, approvedInCluster, ApprovedInGit} {
		if of(p) != nil {
			return g
		}
	}
	switch pause := pausing(p); {
	case pause == nil:
	case pause.Open:
		g.Message += fmt.Sprintf("; the pause of step %d has elapsed, and its gate opens once the plan is resumed", p.Status.CurrentStepIndex)
	default:
		g.Wait = pause.Wait
		g.Message += fmt.Sprintf("; the pause of step %d runs on, until %s UTC",
			p.Status.CurrentStepIndex, p.Now.Add(pause.Wait).UTC().Format(time.TimeOnly))
	}
	return g
}

// backwards: the gates of a rollback open as soon as the pods are available.
func backwards(p *position.Position) *Gate {
	if !p.Status.RollingBack {
		return nil
	}
	return &Gate{Open: true}
}

// approvedInCluster: the step's state was written by a person, now or before its
// pods were available.
func approvedInCluster(p *position.Position) *Gate {
	given := p.Status.CurrentStepState == v1alpha1.StepCompleted || p.Status.RequestedApproval != nil && !p.Spec.ReviewApprovals
	if !given || p.Spec.RequireSignedApprovals {
		return nil
	}
	return &Gate{
		Open: true, By: v1alpha1.StepApproval{By: v1alpha1.ApprovedByCluster},
		Reason: v1alpha1.ReasonStepApproved, Message: fmt.Sprintf("step %d of %s, in the cluster", p.Status.CurrentStepIndex, p.Goal.Name),
	}
}

// ApprovedInGit returns the answer of an approval from Git: it is of this very release and
// covers the step (I5). The step that the gate leads to is the one that was approved (I3).
func ApprovedInGit(p *position.Position) *Gate {
	a := p.Status.Approval
	if a == nil || isSpent(p, a) || !Approves(p, &a.Approval) || a.Step < p.Status.CurrentStepIndex || !StepsUnchanged(p, a.Steps) {
		return nil
	}
	by := approver(a)
	return &Gate{
		Open: true, By: v1alpha1.StepApproval{By: by, Commit: a.ApprovedIn},
		Reason:  v1alpha1.ReasonStepApproved,
		Message: fmt.Sprintf("step %d of %s, by %s%s", p.Status.CurrentStepIndex, p.Goal.Name, by, inCommit(a.ApprovedIn)),
	}
}

// approver names who gave an approval.
func approver(a *v1alpha1.ObservedApproval) string { return cmp.Or(a.ApprovedBy, "spec.approval") }

// isSpent reports whether an approval has had its release: that has ended, by now or
// when the approval stood there already.
func isSpent(p *position.Position, a *v1alpha1.ObservedApproval) bool {
	return a.Spent || p.Status.HasEndedBefore()
}

// StepsUnchanged reports whether the plan's steps, up to the one that the gate leads to,
// have the replicas of those that were approved.
func StepsUnchanged(p *position.Position, approved []intstr.IntOrString) bool {
	steps := p.Steps()
	last := min(int(p.Status.CurrentStepIndex)+1, len(steps)-1)
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

// Approves reports whether an approval is for the release under way: revision and
// commit, at least seven characters of it. A release without a commit is
// approved without one.
func Approves(p *position.Position, a *v1alpha1.Approval) bool {
	if a.Revision != p.Status.UpdateRevision {
		return false
	}
	if a.Commit == p.Status.UpdateCommit {
		return true
	}
	return len(a.Commit) >= shortestCommit && strings.HasPrefix(p.Status.UpdateCommit, a.Commit)
}

// pausing: a pause ends by itself.
func pausing(p *position.Position) *Gate {
	pause := pauseOf(p)
	if pause == nil || p.Capped() {
		return nil
	}
	left := pause.Duration.Duration
	if p.Status.StepStateTime != nil {
		left -= p.Now.Sub(p.Status.StepStateTime.Time)
	}
	if left <= 0 {
		return &Gate{Open: true, Reason: v1alpha1.ReasonPauseElapsed,
			Message: fmt.Sprintf("step %d of %s, after %s", p.Status.CurrentStepIndex, p.Goal.Name, pause.Duration.Duration)}
	}
	until := p.Now.Add(left).UTC().Format(time.TimeOnly)
	return &Gate{Reason: v1alpha1.ReasonWaitingForPause,
		Message: fmt.Sprintf("%s; step %d goes on at %s UTC", p.Progress(), p.Status.CurrentStepIndex, until), Wait: left}
}

// pauseOf returns the pause of the step. An analysis without consequences is one, unless it
// wants an approval.
func pauseOf(p *position.Position) *v1alpha1.Pause {
	if a := position.StepAnalysis(p); a != nil && !position.Acts(p) && !a.Approval {
		return &v1alpha1.Pause{Duration: a.Duration}
	}
	return p.Steps()[p.Status.CurrentStepIndex].Pause
}

// unapproved: the step waits for an approval.
func unapproved(p *position.Position) *Gate {
	step, next := int(p.Status.CurrentStepIndex), beyondGate(p)
	if p.Status.HasEndedBefore() && p.Status.RequestedApproval == nil {
		return &Gate{Reason: v1alpha1.ReasonWaitingForApproval, Message: fmt.Sprintf("%s; this release has ended before, so no approval in Git "+
			"opens step %d: bring the change by a new commit", p.Progress(), step)}
	}
	if a := p.Status.Approval; a != nil && Approves(p, &a.Approval) && a.Step >= p.Status.CurrentStepIndex {
		why := "the approval was given for other steps; give it again"
		if isSpent(p, a) {
			why = "this release has ended before, and its approval with it; bring the change by a new commit"
		}
		return &Gate{Reason: v1alpha1.ReasonWaitingForApproval,
			Message: fmt.Sprintf("%s; step %d goes on to %s when it is approved: %s", p.Progress(), step, next, why)}
	}
	if p.Status.RequestedApproval != nil {
		return &Gate{Reason: v1alpha1.ReasonWaitingForReview,
			Message: fmt.Sprintf("%s; step %d was approved in the cluster, and goes on to %s when Git says so", p.Progress(), step, next)}
	}
	if p.Parked() {
		return &Gate{Reason: v1alpha1.ReasonWaitingForApproval,
			Message: fmt.Sprintf("%s; step %d has no pod with maxSurge 0; approve it to go on to step %d", p.Progress(), step, LeadsTo(p))}
	}
	return &Gate{Reason: v1alpha1.ReasonWaitingForApproval,
		Message: fmt.Sprintf("%s; approve step %d to go on to %s", p.Progress(), step, next)}
}

// beyondGate says how many pods are to run the update revision once the gate opens.
// After an edit of the plan that may be fewer than run it now. An approval before a
// step that was raised is one of the step's own gate, too.
func beyondGate(p *position.Position) string {
	step := LeadsTo(p)
	goal := opensTo(p, step)
	says := strconv.Itoa(int(goal))
	if goal < facts.Size(p.Goal.ReplicaSet) {
		says += ", fewer than run it now"
	}
	if p.Capped() && step < len(p.Steps())-1 {
		if then := opensTo(p, step+1); then != goal {
			says += fmt.Sprintf(", and then to %d", then)
		}
	}
	return says
}

// opensTo returns how many pods run the update revision at a step whose gate has opened.
func opensTo(p *position.Position, step int) int32 {
	after := *p
	after.Status.OpenedReplicas, after.Status.CurrentStepIndex = p.OpenTo(step), int32(step)
	goal, _ := after.Target(step)
	return goal
}

// LeadsTo returns the step that the gate leads to.
func LeadsTo(p *position.Position) int {
	if p.Capped() {
		return int(p.Status.CurrentStepIndex)
	}
	return int(p.Status.CurrentStepIndex) + 1
}
