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
func decideGate(d *draft) {
	noteRequest(d)
	if d.status.CurrentStepState == v1alpha1.StepUpgrade && !opensNow(&d.position) {
		d.setState(v1alpha1.StepBlocking)
	}
	timeGate(d)
	for _, check := range []func(*position) *gate{frozen, backwards, approvedInCluster, approvedInGit, pausing, unapproved} {
		g := check(&d.position)
		if g == nil {
			continue
		}
		d.wait = g.wait
		if g.open {
			passGate(d, g)
			return
		}
		d.report(g.reason, g.message)
		return
	}
}

// timeGate lets the time of the step's own gate run from when the release waits there.
// Before that the release waits at a gate before the step, which an edit has raised. No
// pause of the step runs then. One begins when the gate before it is gone, as it is if N
// has shrunk.
func timeGate(d *draft) {
	switch {
	case d.capped():
		d.status.StepStateTime = nil
	case d.status.StepStateTime == nil:
		d.status.StepStateTime = d.time()
	}
}

// opensNow reports whether the gate opens by now without a pause to sit out.
func opensNow(p *position) bool {
	if frozen(p) != nil {
		return false
	}
	pause := p.steps()[p.status.CurrentStepIndex].Pause
	return backwards(p) != nil || approvedInCluster(p) != nil || approvedInGit(p) != nil || pause != nil && pause.Duration.Duration <= 0 && !p.capped()
}

// passGate opens the gate and begins the next step, or the present one where the gate
// was before that. It moves nothing.
func passGate(d *draft, g *gate) {
	step, next := d.status.CurrentStepIndex, d.afterGate()
	if g.by.By != "" {
		g.by.Step, g.by.Time = step, *d.time()
		d.status.Approvals = append(d.status.Approvals, g.by)
	}
	if g.reason != "" {
		d.event(g.reason, g.message)
	}
	d.status.OpenedReplicas = d.openTo(next)
	d.enter(next, v1alpha1.StepUpgrade)
	d.status.Phase = v1alpha1.PhaseRollingUpdate
	d.report(reasonUnderWay(&d.position), d.progress())
}

// frozen: nothing opens while the plan is paused.
func frozen(p *position) *gate {
	if !p.spec.Paused {
		return nil
	}
	return &gate{reason: ReasonReleasePaused, message: "the plan is paused; " + p.progress()}
}

// backwards: the gates of a rollback open as soon as the pods are available.
func backwards(p *position) *gate {
	if !p.status.RollingBack {
		return nil
	}
	return &gate{open: true}
}

// noteRequest notes an approval given in the cluster that is to be reviewed, and
// puts the state back. The time stays: a pause that runs goes on.
func noteRequest(d *draft) {
	if !d.spec.ReviewApprovals || d.status.RollingBack || d.lastStep() || d.status.CurrentStepState != v1alpha1.StepCompleted {
		return
	}
	d.status.CurrentStepState = v1alpha1.StepBlocking
	d.request(ReasonWaitingForReview, "; the approval is to be reviewed")
}

// deferApproval notes an approval given in the cluster while the step's pods are
// not available. It opens the gate once they are.
func deferApproval(d *draft) {
	if d.status.RollingBack || d.status.CurrentStepState != v1alpha1.StepCompleted || d.status.Phase == v1alpha1.PhaseFinalizing {
		return
	}
	d.takeBackState()
	if d.lastStep() { // there is nothing to approve, and its deadline runs
		return
	}
	d.request(ReasonStepApproved, "; the gate opens once the step's pods are available")
}

func (d *draft) request(reason, then string) {
	if d.status.RequestedApproval == nil {
		d.status.RequestedApproval = &v1alpha1.RequestedApproval{Step: d.status.CurrentStepIndex, Time: *d.time()}
		d.event(reason, fmt.Sprintf("step %d of %s was approved in the cluster%s", d.status.CurrentStepIndex, d.goal.name, then))
	}
}

// takeBackState puts back the state over which an approval was written. The time
// stays, so that no pause begins again.
func (d *draft) takeBackState() {
	if d.status.CurrentStepTarget > 0 {
		d.status.CurrentStepState = v1alpha1.StepBlocking
		return
	}
	d.status.CurrentStepState, d.status.ProgressTime = v1alpha1.StepUpgrade, d.time()
}

// refuseApproval takes back an approval that was given in the cluster if only signed
// ones count. The step's times stay, so that no pause begins again.
func refuseApproval(d *draft) {
	if !d.spec.RequireSignedApprovals || d.status.CurrentStepState != v1alpha1.StepCompleted ||
		d.status.Phase == v1alpha1.PhaseFinalizing || d.status.RollingBack || d.Deployment != nil && d.lastStep() {
		return
	}
	d.takeBackState()
	d.warn(ReasonApprovalRefused, fmt.Sprintf("step %d of %s was approved in the cluster, and only signed approvals count; commit a signed one", d.status.CurrentStepIndex, d.status.UpdateRevision))
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
		reason: ReasonStepApproved, message: fmt.Sprintf("step %d of %s, in the cluster", p.status.CurrentStepIndex, p.goal.name),
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
		reason: ReasonStepApproved, message: fmt.Sprintf("step %d of %s, by %s%s", p.status.CurrentStepIndex, p.goal.name, by, inCommit(a.ApprovedIn)),
	}
}

// observeApproval keeps spec.approval as it is first seen, with the steps that the
// plan has then, unless it names those itself. An edit of the plan does not change
// what was approved.
func observeApproval(d *draft) {
	a := d.spec.Approval
	if a == nil {
		d.status.Approval = nil
		return
	}
	observed := v1alpha1.ObservedApproval{Approval: *a.DeepCopy()}
	if old := d.status.Approval; old != nil {
		before := *old.Approval.DeepCopy()
		if len(a.Steps) == 0 {
			before.Steps = nil
		}
		if equality.Semantic.DeepEqual(before, observed.Approval) {
			return
		}
	}
	if len(observed.Steps) == 0 {
		for _, s := range d.spec.Strategy.Steps {
			observed.Steps = append(observed.Steps, s.Replicas)
		}
	}
	d.status.Approval = &observed
}

// observeSteps notes the steps that the status is about. An approval that was written to
// the status is for those that stood there. If the gate leads to another step by now, it
// is taken back.
func observeSteps(d *draft) {
	before := d.status.Steps
	d.status.Steps = nil
	for _, s := range d.spec.Strategy.Steps {
		d.status.Steps = append(d.status.Steps, s.Replicas)
	}
	given := d.status.CurrentStepState == v1alpha1.StepCompleted && d.status.Phase != v1alpha1.PhaseFinalizing || d.status.RequestedApproval != nil
	if !given || len(before) == 0 || d.status.RollingBack || !releasing(&d.status) || stepsUnchanged(&d.position, before) {
		return
	}
	d.status.RequestedApproval = nil
	if d.status.CurrentStepState == v1alpha1.StepCompleted {
		d.takeBackState()
	}
	d.warn(ReasonApprovalIgnored, fmt.Sprintf("step %d of %s was approved in the cluster for other steps than the plan has now; approve it again", d.status.CurrentStepIndex, d.goal.name))
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
		return &gate{open: true, reason: ReasonPauseElapsed, message: fmt.Sprintf("step %d of %s, after %s", p.status.CurrentStepIndex, p.goal.name, pause.Duration.Duration)}
	}
	until := p.now.Add(left).UTC().Format(time.TimeOnly)
	return &gate{reason: ReasonWaitingForPause, message: fmt.Sprintf("%s; step %d goes on at %s UTC", p.progress(), p.status.CurrentStepIndex, until), wait: left}
}

// unapproved: the step waits for an approval.
func unapproved(p *position) *gate {
	step, next := int(p.status.CurrentStepIndex), beyondGate(p)
	if a := p.status.Approval; a != nil && approvesRelease(p, &a.Approval) && a.Step >= p.status.CurrentStepIndex {
		why := "the approval was given for other steps; give it again"
		if isSpent(p, a) {
			why = "this release has ended before, and its approval with it; bring the change by a new commit"
		}
		return &gate{reason: ReasonWaitingForApproval, message: fmt.Sprintf("%s; step %d goes on to %s when it is approved: %s", p.progress(), step, next, why)}
	}
	if p.status.RequestedApproval != nil {
		return &gate{reason: ReasonWaitingForReview, message: fmt.Sprintf("%s; step %d was approved in the cluster, and goes on to %s when Git says so", p.progress(), step, next)}
	}
	if p.parked() {
		return &gate{reason: ReasonWaitingForApproval, message: fmt.Sprintf("%s; step %d has no pod with maxSurge 0; approve it to go on to step %d", p.progress(), step, p.afterGate())}
	}
	return &gate{reason: ReasonWaitingForApproval, message: fmt.Sprintf("%s; approve step %d to go on to %s", p.progress(), step, next)}
}

// beyondGate says how many pods are to run the update revision once the gate opens.
// After an edit of the plan that may be fewer than run it now. An approval before a
// step that was raised is one of the step's own gate, too.
func beyondGate(p *position) string {
	step := p.afterGate()
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

// afterGate is the step that the gate leads to.
func (p *position) afterGate() int {
	if p.capped() {
		return int(p.status.CurrentStepIndex)
	}
	return int(p.status.CurrentStepIndex) + 1
}

// trackProgress keeps the step's best number of available pods, and when that was
// reached. The deadline runs from it, so pods that come and go do not extend it for ever.
// Time in which nothing could move does not count: paused, refused, or with no controller
// running.
func trackProgress(d *draft) {
	if d.status.CurrentStepState != v1alpha1.StepUpgrade {
		return
	}
	available := newSet(*d.goal).clamp().available
	goal, _ := d.target(int(d.status.CurrentStepIndex))
	best := min(d.status.BestAvailableReplicas, goal) // a Deployment made smaller begins again
	if available > best || stoppedBy[d.status.Reason] && !d.spec.Paused {
		best = available
		d.status.ProgressTime = d.time()
	}
	d.status.BestAvailableReplicas = best
	if d.deadline() <= 0 && recovered(&d.position) {
		d.status.ProgressTime, d.status.CurrentStepLostSeconds = d.time(), 0
	}
}

// recovered reports whether a step that has missed its deadline can go on. All of its
// pods are then available again, and only the deadline keeps it from moving.
func recovered(p *position) bool {
	g := newSet(*p.goal)
	if p.spec.Paused || p.status.RollingBack || !g.observed || g.clamp().available < g.size {
		return false
	}
	return !slices.Equal(p.next(p.shares(false)), p.next(p.shares(true)))
}

// stoppedBy are the reasons for which nothing could move.
var stoppedBy = map[string]bool{
	ReasonReleasePaused: true, ReasonWriteRefused: true, ReasonTemplateRefused: true, ReasonHandBackRefused: true,
	ReasonInvalidPlan: true, ReasonUnsupportedStrategy: true, ReasonAnotherPlan: true, ReasonRecordsLost: true,
}

// decideDeadline is about a step whose pods are on their way.
func decideDeadline(d *draft) {
	switch left := d.deadline(); {
	case d.spec.Paused:
		d.report(ReasonReleasePaused, "the plan is paused; "+d.progress())
	case left > 0:
		d.wait, d.unready = left, d.isUnready()
		d.report(reasonUnderWay(&d.position), d.progress())
	default:
		missDeadline(d)
	}
}

// deadlineLength is how long a step may take without an increase in available
// pods. A pod needs minReadySeconds to become available, whatever the deadline.
func (c *course) deadlineLength() time.Duration {
	seconds := int64(v1alpha1.DefaultProgressDeadlineSeconds)
	if s := c.spec.Strategy.ProgressDeadlineSeconds; s != nil {
		seconds = int64(*s)
	}
	if c.Deployment != nil {
		seconds += int64(c.Deployment.Spec.MinReadySeconds)
	}
	return time.Duration(seconds) * time.Second
}

// deadline returns how long the step has left for its next new best. If a step has lost
// its pods again and again, the times that it takes to have them back are added up. So
// pods that come and go do not extend the deadline for ever.
func (p *position) deadline() time.Duration {
	length := p.deadlineLength()
	if p.status.ProgressTime == nil {
		return length
	}
	left := length - p.now.Sub(p.status.ProgressTime.Time)
	if lost := p.status.CurrentStepLostSeconds; lost > 0 && p.status.StepStateTime != nil {
		left = min(left, length-time.Duration(lost)*time.Second-p.now.Sub(p.status.StepStateTime.Time))
	}
	return left
}

// lostPods reports whether a step that had its pods has too few of them left. The measure is
// the number that was wanted then, or is now if that is less. A step has too few if fewer
// are available than that number less its maxUnavailable.
func lostPods(p *position) bool {
	target, _ := p.target(int(p.status.CurrentStepIndex))
	had := min(p.status.CurrentStepTarget, target)
	_, unavailable, err := plan.Bounds(&p.strategy, had)
	if err != nil {
		unavailable = 0
	}
	g := newSet(*p.goal)
	return g.clamp().available < had-max(0, min(unavailable, had-1))
}

// fallBack puts a step that has lost its pods under way again. Its pause starts
// again once they are back, and the deadline runs from the number now available.
func fallBack(d *draft) {
	had := d.status.StepStateTime
	if had == nil { // it waited at a gate before the step
		had = d.status.ProgressTime
	}
	if had != nil && d.now.Sub(had.Time) >= d.deadlineLength() {
		d.status.CurrentStepLostSeconds = 0 // it had them long enough
	}
	d.status.Phase = v1alpha1.PhaseRollingUpdate
	d.setState(v1alpha1.StepUpgrade)
	d.status.ProgressTime = d.time()
	d.status.BestAvailableReplicas = newSet(*d.goal).clamp().available
	d.unready = d.isUnready()
	d.warn(ReasonPodsLost, fmt.Sprintf("step %d had its pods available and is under way again: %s", d.status.CurrentStepIndex, d.progress()))
	d.report(reasonUnderWay(&d.position), d.progress())
}

// countLoss adds the time that a step which had lost its pods took to have them back.
func countLoss(d *draft) {
	if d.status.CurrentStepState != v1alpha1.StepUpgrade || d.status.CurrentStepTarget == 0 || d.status.StepStateTime == nil {
		return
	}
	lost := int64(d.status.CurrentStepLostSeconds) + int64(d.now.Sub(d.status.StepStateTime.Time)/time.Second) + 1
	d.status.CurrentStepLostSeconds = int32(min(lost, math.MaxInt32))
}

// awaitPods is about a step whose target was raised at its gate. The gate waits for the
// pods, and the release does not fail for them.
func awaitPods(d *draft) {
	if d.spec.Paused {
		d.report(ReasonReleasePaused, "the plan is paused; "+d.progress())
		return
	}
	waiting := d.status.Reason == ReasonUpgrading || d.status.Reason == ReasonProgressDeadlineExceeded
	if available := newSet(*d.goal).clamp().available; !waiting || available > d.status.BestAvailableReplicas {
		d.status.ProgressTime, d.status.BestAvailableReplicas = d.time(), available
	}
	if left := d.deadlineLength() - d.now.Sub(d.status.ProgressTime.Time); left > 0 {
		d.wait, d.unready = left, d.isUnready()
		d.report(reasonUnderWay(&d.position), d.progress())
		return
	}
	stallMissed(d)
}

// podsInterval is when to look again at pods that the cluster has no place for: no
// ReplicaSet changes when they get one, and fail then.
const podsInterval = time.Minute

// missDeadline is about a step that has missed its deadline: it stops and says so,
// or goes back. A way back that misses it has nowhere to go, and pods that the
// cluster has no place for do not tell against the release.
func missDeadline(d *draft) {
	target, _ := d.target(int(d.status.CurrentStepIndex))
	mayRollBack := d.spec.Strategy.OnFailure == v1alpha1.FailureRollback && !d.status.RollingBack && d.forward()
	stalled := d.Release.Status.Reason == ReasonProgressDeadlineExceeded // the cluster kept the pods away until now
	switch {
	case !mayRollBack || newSet(*d.goal).clamp().available >= target:
		stallMissed(d)
	case d.Pods == nil && stalled, d.Pods != nil && d.Pods.Failing == 0:
		d.wait = podsInterval
		stallMissed(d)
	case stalled, placedLate(&d.position):
		d.status.ProgressTime, d.status.CurrentStepLostSeconds = d.time(), 0
		d.wait = d.deadline()
		d.report(reasonUnderWay(&d.position), d.progress())
	default:
		d.needsPods = d.Pods == nil
		message := missedMessage(&d.position)
		d.warn(ReasonProgressDeadlineExceeded, message)
		failRelease(d, message)
	}
}

// placedLate reports whether all pods that fail got their nodes in the second half of the
// time that the step has had. Until then the cluster kept them away. The deadline then
// starts again. They have had their nodes in its first half the next time.
func placedLate(p *position) bool {
	if p.Pods == nil || p.Pods.PlacedTime.IsZero() || p.status.ProgressTime == nil {
		return false
	}
	waited := p.Pods.PlacedTime.Sub(p.status.ProgressTime.Time)
	return p.now.Sub(p.Pods.PlacedTime) < waited
}

func stallMissed(d *draft) {
	d.needsPods = d.Pods == nil
	message := missedMessage(&d.position)
	if d.status.Reason != ReasonProgressDeadlineExceeded {
		d.warn(ReasonProgressDeadlineExceeded, message)
	}
	d.stall(ReasonProgressDeadlineExceeded, message)
}

func missedMessage(p *position) string {
	return fmt.Sprintf("step %d made no progress in time: %s", p.status.CurrentStepIndex, p.progress())
}

// failRelease gives up what Git brings, until Git says something else. It moves nothing.
func failRelease(d *draft, why string) {
	d.status.FailedRevision, d.status.FailedCommit, d.status.FailedMessage = d.brought.name, d.spec.Commit, why
	d.status.FailedTemplateDigest = d.brought.id
	d.course = d.resolve(&d.status)
	beginRelease(d)
}

// requestedRollback acts on the rollback annotation: first the status says
// what has failed, then the annotation goes.
func requestedRollback(d *draft) bool {
	if d.Release.Annotations[v1alpha1.AnnotationRollback] != "true" {
		return false
	}
	switch {
	case d.forward() && !d.underWay():
		d.warn(ReasonRollbackImpossible, fmt.Sprintf("it was asked for before %s came, which has not begun", d.goal.name))
		d.do(ClearRollback{because: "another release has come since"})
		return false
	case !d.forward() && releasing(&d.status) && !d.underWay() && !d.failed():
		d.do(ClearRollback{because: "Git has gone back"})
		return false
	case d.failed() || d.status.RollingBack:
		d.do(ClearRollback{because: "the rollback has begun"})
		return false
	case d.brought == nil || d.brought == d.stable && d.recorded(1) == nil:
		d.warn(ReasonRollbackImpossible, "nothing that was stable before is known")
		d.do(ClearRollback{because: "there is nothing to go back to"})
		return false
	}
	failRelease(d, "asked for in the cluster")
	return true
}
