package engine

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/plan"
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
	v.noteRequest()
	if v.status.CurrentStepState == v1alpha1.StepUpgrade && !v.open() {
		v.setState(v1alpha1.StepBlocking)
	}
	v.timeGate()
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

// timeGate lets the time of the step's own gate run from when the release waits there.
// Before that the release waits at a gate before the step, which an edit has raised. No
// pause of the step runs then. One begins when the gate before it is gone, as it is if N
// has shrunk.
func (v *view) timeGate() {
	switch {
	case v.capped():
		v.status.StepStateTime = nil
	case v.status.StepStateTime == nil:
		v.status.StepStateTime = v.time()
	}
}

// open reports whether the gate opens by now without a pause to sit out.
func (v *view) open() bool {
	if v.frozen() != nil {
		return false
	}
	pause := v.steps()[v.status.CurrentStepIndex].Pause
	return v.backwards() != nil || v.approvedInCluster() != nil || v.approvedInGit() != nil || pause != nil && pause.Duration.Duration <= 0 && !v.capped()
}

// pass opens the gate and begins the next step, or the present one where the gate
// was before that. It moves nothing.
func (v *view) pass(g *gate) {
	step, next := v.status.CurrentStepIndex, v.afterGate()
	if g.by.By != "" {
		g.by.Step, g.by.Time = step, *v.time()
		v.status.Approvals = append(v.status.Approvals, g.by)
	}
	if g.reason != "" {
		v.event(g.reason, g.message)
	}
	v.status.OpenedReplicas = v.openTo(next)
	v.enter(next, v1alpha1.StepUpgrade)
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
func (v *view) noteRequest() {
	if !v.spec.ReviewApprovals || v.status.RollingBack || v.lastStep() || v.status.CurrentStepState != v1alpha1.StepCompleted {
		return
	}
	v.status.CurrentStepState = v1alpha1.StepBlocking
	v.request(ReasonWaitingForReview, "; the approval is to be reviewed")
}

// deferApproval notes an approval given in the cluster while the step's pods are
// not available. It opens the gate once they are.
func (v *view) deferApproval() {
	if v.status.RollingBack || v.status.CurrentStepState != v1alpha1.StepCompleted || v.status.Phase == v1alpha1.PhaseFinalizing {
		return
	}
	v.takeBackState()
	if v.lastStep() { // there is nothing to approve, and its deadline runs
		return
	}
	v.request(ReasonStepApproved, "; the gate opens once the step's pods are available")
}

func (v *view) request(reason, then string) {
	if v.status.RequestedApproval == nil {
		v.status.RequestedApproval = &v1alpha1.RequestedApproval{Step: v.status.CurrentStepIndex, Time: *v.time()}
		v.event(reason, fmt.Sprintf("step %d of %s was approved in the cluster%s", v.status.CurrentStepIndex, v.goal.name, then))
	}
}

// takeBackState puts back the state over which an approval was written. The time
// stays, so that no pause begins again.
func (v *view) takeBackState() {
	if v.status.CurrentStepTarget > 0 {
		v.status.CurrentStepState = v1alpha1.StepBlocking
		return
	}
	v.status.CurrentStepState, v.status.ProgressTime = v1alpha1.StepUpgrade, v.time()
}

// refuseApproval takes back an approval that was given in the cluster if only signed
// ones count. The step's times stay, so that no pause begins again.
func (v *view) refuseApproval() {
	if !v.spec.RequireSignedApprovals || v.status.CurrentStepState != v1alpha1.StepCompleted ||
		v.status.Phase == v1alpha1.PhaseFinalizing || v.status.RollingBack || v.d != nil && v.lastStep() {
		return
	}
	v.takeBackState()
	v.warn(ReasonApprovalRefused, fmt.Sprintf("step %d of %s was approved in the cluster, and only signed approvals count; commit a signed one", v.status.CurrentStepIndex, v.status.UpdateRevision))
}

// approvedInCluster: the step's state was written by a person, now or before its
// pods were available.
func (v *view) approvedInCluster() *gate {
	given := v.status.CurrentStepState == v1alpha1.StepCompleted || v.status.RequestedApproval != nil && !v.spec.ReviewApprovals
	if !given || v.spec.RequireSignedApprovals {
		return nil
	}
	return &gate{
		open: true, by: v1alpha1.StepApproval{By: v1alpha1.ApprovedByCluster},
		reason: ReasonStepApproved, message: fmt.Sprintf("step %d of %s, in the cluster", v.status.CurrentStepIndex, v.goal.name),
	}
}

// approvedInGit: the approval of this very release covers the step (I5). The step that
// the gate leads to is the one that was approved (I3).
func (v *view) approvedInGit() *gate {
	a := v.status.Approval
	if a == nil || v.spent(a) || !v.ours(&a.Approval) || a.Step < v.status.CurrentStepIndex || !v.sameSteps(a.Steps) {
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

// observeApproval keeps spec.approval as it is first seen, with the steps that the
// plan has then, unless it names those itself. An edit of the plan does not change
// what was approved.
func (v *view) observeApproval() {
	a := v.spec.Approval
	if a == nil {
		v.status.Approval = nil
		return
	}
	observed := v1alpha1.ObservedApproval{Approval: *a.DeepCopy()}
	if old := v.status.Approval; old != nil {
		before := *old.Approval.DeepCopy()
		if len(a.Steps) == 0 {
			before.Steps = nil
		}
		if equality.Semantic.DeepEqual(before, observed.Approval) {
			return
		}
	}
	if len(observed.Steps) == 0 {
		for _, s := range v.spec.Strategy.Steps {
			observed.Steps = append(observed.Steps, s.Replicas)
		}
	}
	v.status.Approval = &observed
}

// observeSteps notes the steps that the status is about. An approval that was written to
// the status is for those that stood there. If the gate leads to another step by now, it
// is taken back.
func (v *view) observeSteps() {
	before := v.status.Steps
	v.status.Steps = nil
	for _, s := range v.spec.Strategy.Steps {
		v.status.Steps = append(v.status.Steps, s.Replicas)
	}
	given := v.status.CurrentStepState == v1alpha1.StepCompleted && v.status.Phase != v1alpha1.PhaseFinalizing || v.status.RequestedApproval != nil
	if !given || len(before) == 0 || v.status.RollingBack || !releasing(&v.status) || v.sameSteps(before) {
		return
	}
	v.status.RequestedApproval = nil
	if v.status.CurrentStepState == v1alpha1.StepCompleted {
		v.takeBackState()
	}
	v.warn(ReasonApprovalIgnored, fmt.Sprintf("step %d of %s was approved in the cluster for other steps than the plan has now; approve it again", v.status.CurrentStepIndex, v.goal.name))
}

// spent reports whether an approval has had its release: that has ended, by now or
// when the approval stood there already.
func (v *view) spent(a *v1alpha1.ObservedApproval) bool {
	return a.Spent || slices.ContainsFunc(v.status.EndedReleases, func(ended v1alpha1.ReleaseName) bool {
		return ended.Commit == v.status.UpdateCommit // it has one template; a revision's name may change
	})
}

// sameSteps reports whether the plan's steps, up to the one that the gate leads to,
// have the replicas of those that were approved.
func (v *view) sameSteps(approved []intstr.IntOrString) bool {
	steps := v.steps()
	last := min(int(v.status.CurrentStepIndex)+1, len(steps)-1)
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
	if pause == nil || v.capped() {
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
	step, next := int(v.status.CurrentStepIndex), v.beyond()
	if a := v.status.Approval; a != nil && v.ours(&a.Approval) && a.Step >= v.status.CurrentStepIndex {
		why := "the approval was given for other steps; give it again"
		if v.spent(a) {
			why = "this release has ended before, and its approval with it; bring the change by a new commit"
		}
		return &gate{reason: ReasonWaitingForApproval, message: fmt.Sprintf("%s; step %d goes on to %s when it is approved: %s", v.progress(), step, next, why)}
	}
	if v.status.RequestedApproval != nil {
		return &gate{reason: ReasonWaitingForReview, message: fmt.Sprintf("%s; step %d was approved in the cluster, and goes on to %s when Git says so", v.progress(), step, next)}
	}
	if v.parked() {
		return &gate{reason: ReasonWaitingForApproval, message: fmt.Sprintf("%s; step %d has no pod with maxSurge 0; approve it to go on to step %d", v.progress(), step, v.afterGate())}
	}
	return &gate{reason: ReasonWaitingForApproval, message: fmt.Sprintf("%s; approve step %d to go on to %s", v.progress(), step, next)}
}

// beyond says how many pods are to run the update revision once the gate opens.
// After an edit of the plan that may be fewer than run it now. An approval before a
// step that was raised is one of the step's own gate, too.
func (v *view) beyond() string {
	step := v.afterGate()
	goal := v.opensTo(step)
	says := strconv.Itoa(int(goal))
	if goal < size(v.goal.rs) {
		says += ", fewer than run it now"
	}
	if v.capped() && step < len(v.steps())-1 {
		says += fmt.Sprintf(", and then to %d", v.opensTo(step+1))
	}
	return says
}

// opensTo returns how many pods run the update revision at a step whose gate has opened.
func (v *view) opensTo(step int) int32 {
	after := *v
	after.status.OpenedReplicas, after.status.CurrentStepIndex = v.openTo(step), int32(step)
	goal, _ := after.target(step)
	return goal
}

// afterGate is the step that the gate leads to.
func (v *view) afterGate() int {
	if v.capped() {
		return int(v.status.CurrentStepIndex)
	}
	return int(v.status.CurrentStepIndex) + 1
}

// trackProgress keeps the step's best number of available pods, and when that was
// reached. The deadline runs from it, so pods that come and go do not extend it for ever.
// Time in which nothing could move does not count: paused, refused, or with no controller
// running.
func (v *view) trackProgress() {
	if v.status.CurrentStepState != v1alpha1.StepUpgrade {
		return
	}
	available := newSet(*v.goal).clamp().available
	goal, _ := v.target(int(v.status.CurrentStepIndex))
	best := min(v.status.BestAvailableReplicas, goal) // a Deployment made smaller begins again
	if available > best || stoppedBy[v.status.Reason] && !v.spec.Paused {
		best = available
		v.status.ProgressTime = v.time()
	}
	v.status.BestAvailableReplicas = best
	if v.deadline() <= 0 && v.recovered() {
		v.status.ProgressTime, v.status.CurrentStepLostSeconds = v.time(), 0
	}
}

// recovered reports whether a step that has missed its deadline can go on. All of its
// pods are then available again, and only the deadline keeps it from moving.
func (v *view) recovered() bool {
	g := newSet(*v.goal)
	if v.spec.Paused || v.status.RollingBack || !g.observed || g.clamp().available < g.size {
		return false
	}
	return !slices.Equal(v.next(v.shares(false)), v.next(v.shares(true)))
}

// stoppedBy are the reasons for which nothing could move.
var stoppedBy = map[string]bool{
	ReasonReleasePaused: true, ReasonWriteRefused: true, ReasonTemplateRefused: true, ReasonHandBackRefused: true,
	ReasonInvalidPlan: true, ReasonUnsupportedStrategy: true, ReasonAnotherPlan: true,
}

// decideDeadline is about a step whose pods are on their way.
func (v *view) decideDeadline() {
	switch left := v.deadline(); {
	case v.spec.Paused:
		v.report(ReasonReleasePaused, "the plan is paused; "+v.progress())
	case left > 0:
		v.wait, v.unready = left, v.isUnready()
		v.report(v.reasonUnderWay(), v.progress())
	default:
		v.missed()
	}
}

// deadlineLength is how long a step may take without an increase in available
// pods. A pod needs minReadySeconds to become available, whatever the deadline.
func (v *view) deadlineLength() time.Duration {
	seconds := int64(v1alpha1.DefaultProgressDeadlineSeconds)
	if s := v.spec.Strategy.ProgressDeadlineSeconds; s != nil {
		seconds = int64(*s)
	}
	if v.d != nil {
		seconds += int64(v.d.Spec.MinReadySeconds)
	}
	return time.Duration(seconds) * time.Second
}

// deadline returns how long the step has left for its next new best. If a step has lost
// its pods again and again, the times that it takes to have them back are added up. So
// pods that come and go do not extend the deadline for ever.
func (v *view) deadline() time.Duration {
	length := v.deadlineLength()
	if v.status.ProgressTime == nil {
		return length
	}
	left := length - v.now.Sub(v.status.ProgressTime.Time)
	if lost := v.status.CurrentStepLostSeconds; lost > 0 && v.status.StepStateTime != nil {
		left = min(left, length-time.Duration(lost)*time.Second-v.now.Sub(v.status.StepStateTime.Time))
	}
	return left
}

// lost reports whether a step that had its pods has too few of them left. The measure is
// the number that was wanted then, or is now if that is less. A step has too few if fewer
// are available than that number less its maxUnavailable.
func (v *view) lost() bool {
	target, _ := v.target(int(v.status.CurrentStepIndex))
	had := min(v.status.CurrentStepTarget, target)
	_, unavailable, err := plan.Bounds(&v.strategy, had)
	if err != nil {
		unavailable = 0
	}
	g := newSet(*v.goal)
	return g.clamp().available < had-max(0, min(unavailable, had-1))
}

// fallBack puts a step that has lost its pods under way again. Its pause starts
// again once they are back, and the deadline runs from the number now available.
func (v *view) fallBack() {
	had := v.status.StepStateTime
	if had == nil { // it waited at a gate before the step
		had = v.status.ProgressTime
	}
	if had != nil && v.now.Sub(had.Time) >= v.deadlineLength() {
		v.status.CurrentStepLostSeconds = 0 // it had them long enough
	}
	v.status.Phase = v1alpha1.PhaseRollingUpdate
	v.setState(v1alpha1.StepUpgrade)
	v.status.ProgressTime = v.time()
	v.status.BestAvailableReplicas = newSet(*v.goal).clamp().available
	v.unready = v.isUnready()
	v.warn(ReasonPodsLost, fmt.Sprintf("step %d had its pods available and is under way again: %s", v.status.CurrentStepIndex, v.progress()))
	v.report(v.reasonUnderWay(), v.progress())
}

// recover adds the time that a step which had lost its pods took to have them back.
func (v *view) recover() {
	if v.status.CurrentStepState != v1alpha1.StepUpgrade || v.status.CurrentStepTarget == 0 || v.status.StepStateTime == nil {
		return
	}
	lost := int64(v.status.CurrentStepLostSeconds) + int64(v.now.Sub(v.status.StepStateTime.Time)/time.Second) + 1
	v.status.CurrentStepLostSeconds = int32(min(lost, math.MaxInt32))
}

// awaitPods is about a step whose target was raised at its gate. The gate waits for the
// pods, and the release does not fail for them.
func (v *view) awaitPods() {
	if v.spec.Paused {
		v.report(ReasonReleasePaused, "the plan is paused; "+v.progress())
		return
	}
	waiting := v.status.Reason == ReasonUpgrading || v.status.Reason == ReasonProgressDeadlineExceeded
	if available := newSet(*v.goal).clamp().available; !waiting || available > v.status.BestAvailableReplicas {
		v.status.ProgressTime, v.status.BestAvailableReplicas = v.time(), available
	}
	if left := v.deadlineLength() - v.now.Sub(v.status.ProgressTime.Time); left > 0 {
		v.wait, v.unready = left, v.isUnready()
		v.report(v.reasonUnderWay(), v.progress())
		return
	}
	v.stallMissed()
}

// podsInterval is when to look again at pods that the cluster has no place for: no
// ReplicaSet changes when they get one, and fail then.
const podsInterval = time.Minute

// missed is about a step that has missed its deadline: it stops and says so,
// or goes back. A way back that misses it has nowhere to go, and pods that the
// cluster has no place for do not tell against the release.
func (v *view) missed() {
	target, _ := v.target(int(v.status.CurrentStepIndex))
	mayRollBack := v.spec.Strategy.OnFailure == v1alpha1.FailureRollback && !v.status.RollingBack && v.forward()
	stalled := v.Release.Status.Reason == ReasonProgressDeadlineExceeded // the cluster kept the pods away until now
	switch {
	case !mayRollBack || newSet(*v.goal).clamp().available >= target:
		v.stallMissed()
	case v.Pods == nil && stalled, v.Pods != nil && v.Pods.Failing == 0:
		v.wait = podsInterval
		v.stallMissed()
	case stalled, v.placedLate():
		v.status.ProgressTime, v.status.CurrentStepLostSeconds = v.time(), 0
		v.wait = v.deadline()
		v.report(v.reasonUnderWay(), v.progress())
	default:
		v.needsPods = v.Pods == nil
		message := v.missedMessage()
		v.warn(ReasonProgressDeadlineExceeded, message)
		v.fail(message)
	}
}

// placedLate reports whether all pods that fail got their nodes in the second half of the
// time that the step has had. Until then the cluster kept them away. The deadline then
// starts again. They have had their nodes in its first half the next time.
func (v *view) placedLate() bool {
	if v.Pods == nil || v.Pods.PlacedTime.IsZero() || v.status.ProgressTime == nil {
		return false
	}
	waited := v.Pods.PlacedTime.Sub(v.status.ProgressTime.Time)
	return v.now.Sub(v.Pods.PlacedTime) < waited
}

func (v *view) stallMissed() {
	v.needsPods = v.Pods == nil
	message := v.missedMessage()
	if v.status.Reason != ReasonProgressDeadlineExceeded {
		v.warn(ReasonProgressDeadlineExceeded, message)
	}
	v.stall(ReasonProgressDeadlineExceeded, message)
}

func (v *view) missedMessage() string {
	return fmt.Sprintf("step %d made no progress in time: %s", v.status.CurrentStepIndex, v.progress())
}

// fail gives up what Git brings, until Git says something else. It moves nothing.
func (v *view) fail(why string) {
	v.status.FailedRevision, v.status.FailedCommit, v.status.FailedMessage = v.brought.name, v.spec.Commit, why
	v.status.FailedTemplateDigest = v.brought.id
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
	case v.forward() && !v.underWay():
		v.warn(ReasonRollbackImpossible, fmt.Sprintf("it was asked for before %s came, which has not begun", v.goal.name))
		v.do(ClearRollback{because: "another release has come since"})
		return false
	case !v.forward() && releasing(&v.status) && !v.underWay() && !v.failed():
		v.do(ClearRollback{because: "Git has gone back"})
		return false
	case v.failed() || v.status.RollingBack:
		v.do(ClearRollback{because: "the rollback has begun"})
		return false
	case v.brought == nil || v.brought == v.stable && v.recorded(1) == nil:
		v.warn(ReasonRollbackImpossible, "nothing that was stable before is known")
		v.do(ClearRollback{because: "there is nothing to go back to"})
		return false
	}
	v.fail("asked for in the cluster")
	return true
}
