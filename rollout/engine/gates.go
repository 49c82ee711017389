package engine

import (
	"fmt"
	"strings"
	"time"

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

// decideGate is about a step whose pods are available. It is left when its
// gate opens; the first check that has an answer counts.
func (v *view) decideGate() {
	v.noteRequest(v1alpha1.StepBlocking)
	if v.status.CurrentStepState == v1alpha1.StepUpgrade && !v.open() {
		v.setState(v1alpha1.StepBlocking)
	}
	for _, check := range []func() *gate{v.frozen, v.backwards, v.approvedInCluster, v.approvedInGit, v.pausing, v.unapproved} {
		g := check()
		if g == nil {
			continue
		}
		v.wait = g.wait
		if g.open {
			v.pass(g)
			return
		}
		v.report(g.reason, g.message)
		return
	}
}

// open reports whether the gate opens by now without a pause to sit out.
func (v *view) open() bool {
	if v.frozen() != nil {
		return false
	}
	pause := v.steps()[v.status.CurrentStepIndex].Pause
	return v.backwards() != nil || v.approvedInCluster() != nil || v.approvedInGit() != nil || pause != nil && pause.Duration.Duration <= 0
}

// pass opens the gate and begins the next step. It moves nothing.
func (v *view) pass(g *gate) {
	step := v.status.CurrentStepIndex
	if g.by.By != "" {
		g.by.Step, g.by.Time = step, *v.time()
		v.status.Approvals = append(v.status.Approvals, g.by)
	}
	if g.reason != "" {
		v.event(g.reason, g.message)
	}
	v.enter(int(step)+1, v1alpha1.StepUpgrade)
	v.status.Phase = v1alpha1.PhaseRollingUpdate
	v.report(v.reasonUnderWay(), v.progress())
}

// frozen: nothing opens while the plan is paused.
func (v *view) frozen() *gate {
	if !v.spec.Paused {
		return nil
	}
	return &gate{reason: ReasonReleasePaused, message: "the plan is paused; " + v.progress()}
}

// backwards: the gates of a rollback open as soon as the pods are available.
func (v *view) backwards() *gate {
	if !v.status.RollingBack {
		return nil
	}
	return &gate{open: true}
}

// noteRequest notes an approval given in the cluster that is to be reviewed, and
// puts the state back. The time stays: a pause that runs goes on.
func (v *view) noteRequest(state v1alpha1.StepState) {
	if !v.spec.ReviewApprovals || v.status.RollingBack || v.lastStep() || v.status.CurrentStepState != v1alpha1.StepCompleted {
		return
	}
	v.status.CurrentStepState = state
	if v.status.RequestedApproval == nil {
		v.status.RequestedApproval = &v1alpha1.RequestedApproval{Step: v.status.CurrentStepIndex, Time: *v.time()}
		v.event(ReasonWaitingForReview, fmt.Sprintf("step %d of %s was approved in the cluster; the approval is to be reviewed", v.status.CurrentStepIndex, v.goal.name))
	}
}

// refuseApproval takes back an approval that was given in the cluster where
// only signed ones count. The step's times stay, so that no pause begins anew.
func (v *view) refuseApproval() {
	if !v.spec.RequireSignedApprovals || v.status.CurrentStepState != v1alpha1.StepCompleted ||
		v.status.Phase == v1alpha1.PhaseFinalizing || v.status.RollingBack || v.lastStep() {
		return
	}
	// Blocking, even where the pods are not available: as a step that is under
	// way with a clock that ran out it might count as failed.
	v.status.CurrentStepState = v1alpha1.StepBlocking
	v.warn(ReasonApprovalRefused, fmt.Sprintf("step %d of %s was approved in the cluster, and only signed approvals count; commit a signed one", v.status.CurrentStepIndex, v.goal.name))
}

// approvedInCluster: the step's state was written by a person.
func (v *view) approvedInCluster() *gate {
	if v.status.CurrentStepState != v1alpha1.StepCompleted || v.spec.RequireSignedApprovals {
		return nil
	}
	return &gate{
		open: true, by: v1alpha1.StepApproval{By: v1alpha1.ApprovedByCluster},
		reason: ReasonStepApproved, message: fmt.Sprintf("step %d of %s, in the cluster", v.status.CurrentStepIndex, v.goal.name),
	}
}

// approvedInGit: the approval of this very release covers the step (I5).
func (v *view) approvedInGit() *gate {
	a := v.spec.Approval
	if a == nil || !v.ours(a) || a.Step < v.status.CurrentStepIndex {
		return nil
	}
	by := a.ApprovedBy
	if by == "" {
		by = "spec.approval"
	}
	return &gate{
		open: true, by: v1alpha1.StepApproval{By: by, Commit: a.ApprovedIn},
		reason: ReasonStepApproved, message: fmt.Sprintf("step %d of %s, by %s%s", v.status.CurrentStepIndex, v.goal.name, by, inCommit(a.ApprovedIn)),
	}
}

func inCommit(commit string) string {
	if commit == "" {
		return ""
	}
	return " in commit " + commit
}

// ours reports whether an approval is for the release under way: revision and
// commit, at least seven characters of it. A release without a commit is
// approved without one.
func (v *view) ours(a *v1alpha1.Approval) bool {
	if a.Revision != v.status.UpdateRevision {
		return false
	}
	if a.Commit == v.status.UpdateCommit {
		return true
	}
	return len(a.Commit) >= shortestCommit && strings.HasPrefix(v.status.UpdateCommit, a.Commit)
}

// pausing: a pause ends by itself.
func (v *view) pausing() *gate {
	pause := v.steps()[v.status.CurrentStepIndex].Pause
	if pause == nil {
		return nil
	}
	left := pause.Duration.Duration
	if v.status.StepStateTime != nil {
		left -= v.now.Sub(v.status.StepStateTime.Time)
	}
	if left <= 0 {
		return &gate{open: true, reason: ReasonPauseElapsed, message: fmt.Sprintf("step %d of %s, after %s", v.status.CurrentStepIndex, v.goal.name, pause.Duration.Duration)}
	}
	until := v.now.Add(left).UTC().Format(time.TimeOnly)
	return &gate{reason: ReasonWaitingForPause, message: fmt.Sprintf("%s; step %d goes on at %s UTC", v.progress(), v.status.CurrentStepIndex, until), wait: left}
}

// unapproved: the step waits for an approval.
func (v *view) unapproved() *gate {
	step := int(v.status.CurrentStepIndex)
	next, _ := v.target(step + 1)
	if v.status.RequestedApproval != nil {
		return &gate{reason: ReasonWaitingForReview, message: fmt.Sprintf("%s; step %d was approved in the cluster, and goes on to %d when Git says so", v.progress(), step, next)}
	}
	return &gate{reason: ReasonWaitingForApproval, message: fmt.Sprintf("%s; approve step %d to go on to %d", v.progress(), step, next)}
}

// freshen keeps the step's best number of available pods, and when that was
// reached: the deadline runs from it, so pods that come and go do not extend
// it for ever. Time in which nothing could move does not count: paused,
// refused, or with no controller running.
func (v *view) freshen() {
	if v.status.CurrentStepState != v1alpha1.StepUpgrade {
		return
	}
	available := newSet(*v.goal).clamp().available
	goal, _ := v.target(int(v.status.CurrentStepIndex))
	best := min(v.status.BestAvailableReplicas, goal) // a Deployment made smaller begins anew
	if available > best || v.FirstLook || stoppedBy[v.status.Reason] && !v.spec.Paused {
		best = available
		v.status.ProgressTime = v.time()
	}
	v.status.BestAvailableReplicas = best
}

// stoppedBy are the reasons for which nothing could move.
var stoppedBy = map[string]bool{
	ReasonReleasePaused: true, ReasonWriteRefused: true, ReasonTemplateRefused: true,
	ReasonInvalidPlan: true, ReasonUnsupportedStrategy: true, ReasonAnotherPlan: true,
}

// decideDeadline is about a step whose pods are on their way.
func (v *view) decideDeadline() {
	switch left := v.deadline(); {
	case v.spec.Paused:
		v.report(ReasonReleasePaused, "the plan is paused; "+v.progress())
	case left > 0:
		v.wait = left
		v.report(v.reasonUnderWay(), v.progress())
	default:
		v.missed()
	}
}

// deadline returns how long the step has left for its next new best. A pod
// needs minReadySeconds to become available, whatever the deadline.
func (v *view) deadline() time.Duration {
	seconds := v1alpha1.DefaultProgressDeadlineSeconds
	if s := v.spec.Strategy.ProgressDeadlineSeconds; s != nil {
		seconds = *s
	}
	seconds += v.d.Spec.MinReadySeconds
	if v.status.ProgressTime == nil {
		return time.Duration(seconds) * time.Second
	}
	return v.status.ProgressTime.Add(time.Duration(seconds) * time.Second).Sub(v.now)
}

// missed is about a step that has missed its deadline: it stops and says so,
// or goes back. A way back that misses it has nowhere to go.
func (v *view) missed() {
	message := fmt.Sprintf("step %d made no progress in time: %s", v.status.CurrentStepIndex, v.progress())
	if v.status.Reason != ReasonProgressDeadlineExceeded {
		v.warn(ReasonProgressDeadlineExceeded, message)
	}
	if v.spec.Strategy.OnFailure == v1alpha1.FailureRollback && !v.status.RollingBack && v.forward() {
		v.fail(message)
		return
	}
	v.stall(ReasonProgressDeadlineExceeded, message)
}

// fail gives up what Git brings, until Git says something else. It moves nothing.
func (v *view) fail(why string) {
	v.status.FailedRevision, v.status.FailedCommit, v.status.FailedMessage = v.brought.name, v.spec.Commit, why
	v.resolve()
	v.begin()
}

// requestedRollback acts on the rollback annotation: first the status says
// what has failed, then the annotation goes.
func (v *view) requestedRollback() bool {
	if v.Release.Annotations[v1alpha1.AnnotationRollback] != "true" {
		return false
	}
	switch {
	case v.failed() || v.status.RollingBack:
		v.do(ClearRollback{because: "the rollback has begun"})
		return false
	case v.brought == nil || v.stable.equal(v.brought.template) && v.recorded(1) == nil:
		v.warn(ReasonRollbackImpossible, "nothing that was stable before is known")
		v.do(ClearRollback{because: "there is nothing to go back to"})
		return false
	}
	v.fail("asked for in the cluster")
	return true
}
