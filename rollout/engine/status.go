package engine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

const (
	// keptReleases is how many releases the history keeps.
	keptReleases = 10
	// keptEnded is how many releases are known to have ended. A GitSource notes each of them,
	// and refuses the approvals of those that its own list has lost.
	keptEnded = 256
	// refusedInterval is when to try again what the API server has refused: a
	// right may be given meanwhile, which nothing tells.
	refusedInterval = time.Minute
)

// report says what is waited for, or done, in one word and in one sentence.
func (d *draft) report(reason, message string) {
	d.status.Reason, d.status.Message, d.stalled = reason, message, false
}

// stall says the same of what does not go on without a person.
func (d *draft) stall(reason, message string) {
	d.report(reason, message)
	d.stalled = true
}

// Refused returns the status that says that a write was refused, and when to look again.
// The release stands where it stood, and its pods are counted as they were observed. If
// the round has failed before that, o has no Deployment: the counts stay.
func Refused(o Observed, err error, now time.Time) (v1alpha1.BatchReleaseStatus, time.Duration) {
	d := newDraft(&o, now)
	followClock(d)
	observeApproval(d) // it is for the steps of now, whenever the gate opens
	d.stall(ReasonWriteRefused, err.Error())
	held := meta.IsStatusConditionTrue(d.status.Conditions, ConditionHeld)
	d.status.ObservedGeneration = o.Release.Generation
	countPods(d)
	limitWait(d)
	setConditions(d)
	if d.Deployment == nil && held {
		d.condition(ConditionHeld, metav1.ConditionTrue, ReasonHeld, "the native controller is kept off")
	}
	d.wait = refusedInterval
	paceStatus(d)
	return d.status, d.wait
}

// HandedBack returns the last status of a plan that is being deleted, and that finalizers
// keep, once its Deployment is handed back. No release is under way, and no gate waits.
func HandedBack(br *v1alpha1.BatchRelease, now time.Time) v1alpha1.BatchReleaseStatus {
	d := newDraft(&Observed{Release: br}, now)
	s := &d.status
	s.Phase, s.CurrentStepState, s.RequestedApproval = "", "", nil
	d.report(ReasonHandedBack, fmt.Sprintf("the plan is being deleted, and Deployment %s is handed back to the native controller; the finalizers %s keep only this object",
		br.Spec.WorkloadRef.Name, plan.JoinNames(br.Finalizers)))
	s.ObservedGeneration, s.ReasonTime, s.LastUpdateTime = br.Generation, d.time(), d.time()
	for _, name := range []string{ConditionReady, ConditionReconciling, ConditionStalled} {
		d.condition(name, metav1.ConditionFalse, s.Reason, s.Message)
	}
	d.condition(ConditionHeld, metav1.ConditionFalse, ReasonNotHeld, "the Deployment is native")
	return d.status
}

// countPods counts the pods of the Deployment and those of the revision that the status is
// about. It changes nothing if there is no Deployment, or if another plan governs it.
func countPods(d *draft) {
	r := counted(&d.position)
	if r == nil {
		return
	}
	g := newSet(*r).clamp()
	d.status.Replicas = replicas(d.Deployment)
	d.status.UpdatedReplicas, d.status.UpdatedReadyReplicas, d.status.UpdatedAvailableReplicas = 0, g.ready, g.available
	if r.rs != nil { // its size is what is wanted, and not what is there
		d.status.UpdatedReplicas = min(g.size, r.rs.Status.Replicas)
	}
}

// counted returns the revision whose pods are counted. It is the goal or, in a round that
// has resolved none, the revision that the status names.
func counted(p *position) *revision {
	switch {
	case p.Deployment == nil || p.Rival != "":
		return nil
	case p.goal != nil:
		return p.goal
	case p.status.UpdateTemplateDigest == "":
		return nil
	}
	if record := p.recordSent(p.status.UpdateTemplateDigest); record != nil {
		return revisionOfRecord(p.Observed, record)
	}
	return nil
}

func (d *draft) condition(name string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&d.status.Conditions, metav1.Condition{
		Type: name, Status: status, Reason: reason, Message: message,
		ObservedGeneration: d.Release.Generation, LastTransitionTime: *d.time(),
	})
}

func reasonUnderWay(p *position) string {
	if p.status.RollingBack {
		return ReasonRollingBack
	}
	return ReasonUpgrading
}

// progress is the sentence on where the pods are. The size of a ReplicaSet is what is
// wanted: pods run that are ready.
func (c *course) progress() string {
	g := newSet(*c.goal).clamp()
	s := fmt.Sprintf("%d of %d pods run %s", g.ready, c.replicas, c.goal.name)
	if g.available < g.ready {
		s += fmt.Sprintf(", %d of them available", g.available)
	}
	if g.ready < g.size {
		s += fmt.Sprintf(", %d wanted", g.size)
	}
	if c.Pods != nil && c.Pods.Cause != "" {
		s += ": " + c.Pods.Cause
	}
	return s + c.deletions()
}

// isUnready reports whether fewer pods are ready than are wanted.
func (c *course) isUnready() bool {
	g := newSet(*c.goal).clamp()
	return g.ready < g.size
}

// archiveCurrent records the release in the history when a new release or a rollback replaces it.
func archiveCurrent(d *draft) {
	if d.status.Phase == "" || d.status.Phase == v1alpha1.PhaseCompleted || d.status.UpdateRevision == "" { // or it was refused unnamed
		return
	}
	if d.status.RollingBack {
		d.spend()
		return
	}
	outcome := v1alpha1.OutcomeSuperseded
	if !d.forward() {
		outcome = v1alpha1.OutcomeRolledBack
	} else {
		d.event(ReasonReleaseSuperseded, fmt.Sprintf("%s by %s", d.status.UpdateRevision, d.goal.name))
	}
	d.archive(outcome)
}

func (d *draft) archive(outcome v1alpha1.ReleaseOutcome) {
	record := v1alpha1.ReleaseRecord{
		Revision: d.status.UpdateRevision, Commit: d.status.UpdateCommit, Outcome: outcome,
		StartTime: d.status.StartTime, EndTime: *d.time(), Approvals: d.status.Approvals, Rollback: d.status.RollingBack,
	}
	d.spend()
	d.status.History = append([]v1alpha1.ReleaseRecord{record}, d.status.History...)
	if len(d.status.History) > keptReleases {
		d.status.History = d.status.History[:keptReleases]
	}
}

// spend notes that the release has ended: its approvals open no gate again (I5).
func (d *draft) spend() {
	if a := d.status.Approval; a != nil && approvesRelease(&d.position, &a.Approval) {
		a.Spent = true
	}
	ended := v1alpha1.ReleaseName{Revision: d.status.UpdateRevision, Commit: d.status.UpdateCommit}
	if ended.Commit == "" || slices.Contains(d.status.EndedReleases, ended) {
		return
	}
	d.status.EndedReleases = append([]v1alpha1.ReleaseName{ended}, d.status.EndedReleases...)
	d.status.EndedReleases = d.status.EndedReleases[:min(len(d.status.EndedReleases), keptEnded)]
}

// completeRelease records a release in the history once the Deployment is handed back, and
// reports what runs. A rollback to the revision that stayed stable is no release of its
// own.
func completeRelease(d *draft) {
	switch {
	case d.status.Phase == "" || d.status.Phase == v1alpha1.PhaseCompleted:
	case !d.isGoal():
		archiveCurrent(d)
	case d.status.RollingBack && d.status.StableRevision == d.status.UpdateRevision:
		d.spend()
		d.event(ReasonRolledBack, "all pods run "+d.goal.name)
	case d.status.RollingBack:
		d.archive(v1alpha1.OutcomeCompleted)
		d.event(ReasonRolledBack, "all pods run "+d.goal.name+" again")
	default:
		d.archive(v1alpha1.OutcomeCompleted)
		d.event(ReasonReleaseCompleted, "all pods run "+d.goal.name)
	}
	if !d.failed() {
		d.clearFailed()
	}
	if d.status.Phase != v1alpha1.PhaseCompleted {
		d.status.Phase = v1alpha1.PhaseCompleted
		d.status.CurrentStepIndex = int32(len(d.spec.Strategy.Steps) - 1)
		d.setState(v1alpha1.StepCompleted)
	}
	d.status.CurrentStepReplicas, d.status.ProgressTime, d.status.StartTime = nil, nil, nil
	d.status.Approvals, d.status.RequestedApproval, d.status.BestAvailableReplicas, d.status.RollingBack = nil, nil, 0, false
	d.status.OpenedReplicas, d.status.BeganFull, d.status.CurrentStepTarget, d.status.CurrentStepLostSeconds = nil, false, 0, 0
	d.status.StableRevision, d.status.UpdateRevision = d.goal.name, d.goal.name
	d.status.UpdateTemplateDigest, d.status.UpdateCommit = d.goal.id, d.spec.Commit
	switch {
	case d.failed():
		d.stall(ReasonRolledBack, fmt.Sprintf("%s was rolled back to %s; it is not tried again until another template or commit comes", d.status.FailedRevision, d.goal.name))
	case d.brought == nil:
		d.report(ReasonTemplateMissing, "spec.template is empty: there is nothing to release")
	default:
		d.report(ReasonReleaseCompleted, "all pods run "+d.goal.name)
	}
}

// conclude sums the round up.
func conclude(d *draft) Decision {
	warnOfApproval(d)
	countPods(d)
	d.status.ObservedGeneration = d.Release.Generation
	limitWait(d)
	if d.kept { // a round that reports nothing has the message of the last one
		d.status.Message = strings.TrimSuffix(d.status.Message, keptBehind) + keptBehind
	}
	setConditions(d)
	paceStatus(d)
	return Decision{
		Actions: d.actions, Status: d.status, Events: d.events, Wait: d.wait, NeedsPods: d.needsPods, Unready: d.unready && d.Pods == nil,
	}
}

// keptBehind is said where [course.keep] lets another release wait.
const keptBehind = "; spec brings another release, which waits while annotation " + v1alpha1.AnnotationReconcile + " of the Deployment is " + v1alpha1.AnnotationReconcileDisabled

// setConditions computes all conditions.
func setConditions(d *draft) {
	ready := d.status.Phase == v1alpha1.PhaseCompleted && !d.stalled && !d.unreleased && d.Deployment != nil && d.status.Reason != ReasonDeploymentNotFound
	d.condition(ConditionReady, truth(ready), d.status.Reason, d.status.Message)
	leftAlone := d.unreleased && d.status.Reason == ReasonReleasePaused
	d.condition(ConditionReconciling, truth(!ready && !d.stalled && !leftAlone), d.status.Reason, d.status.Message)
	d.condition(ConditionStalled, truth(d.stalled), d.status.Reason, d.status.Message)
	if d.heldAfter() {
		d.condition(ConditionHeld, metav1.ConditionTrue, ReasonHeld, "the native controller is kept off")
	} else {
		d.condition(ConditionHeld, metav1.ConditionFalse, ReasonNotHeld, "the Deployment is native")
	}
}

// heldAfter reports whether the Deployment is held, and no hand-back is among
// the actions. A hold that is just being taken is said with the next status,
// which the native controller's look at it brings a moment later.
func (d *draft) heldAfter() bool {
	return d.Deployment != nil && d.touched() && !slices.ContainsFunc(d.actions, func(a Action) bool { _, ok := a.(HandBack); return ok })
}

func truth(b bool) metav1.ConditionStatus {
	if b {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

// warnOfApproval tells of an approval that is for another release, when the
// spec is first seen.
func warnOfApproval(d *draft) {
	a := d.spec.Approval
	if a == nil || d.kept || d.Release.Generation == d.Release.Status.ObservedGeneration || d.status.Phase == v1alpha1.PhaseCompleted || approvesRelease(&d.position, a) {
		return
	}
	d.warn(ReasonApprovalIgnored, fmt.Sprintf("it is for revision %s, commit %q; the release is %s, commit %q",
		a.Revision, a.Commit, d.status.UpdateRevision, d.status.UpdateCommit))
}

// uncounted returns a status without what only counts.
func uncounted(s v1alpha1.BatchReleaseStatus) v1alpha1.BatchReleaseStatus {
	s = *s.DeepCopy()
	s.Replicas, s.UpdatedReplicas, s.UpdatedReadyReplicas, s.UpdatedAvailableReplicas, s.BestAvailableReplicas = 0, 0, 0, 0, 0
	s.Message, s.ProgressTime, s.LastUpdateTime = "", nil, nil
	for i := range s.Conditions {
		s.Conditions[i].Message = ""
	}
	return s
}

// equalStrategy compares two strategies as the API server completes them.
func equalStrategy(a, b appsv1.DeploymentStrategy) bool {
	return equality.Semantic.DeepEqual(completeStrategy(&a), completeStrategy(&b))
}
