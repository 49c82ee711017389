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
func (v *view) report(reason, message string) {
	v.status.Reason, v.status.Message, v.stalled = reason, message, false
}

// stall says the same of what does not go on without a person.
func (v *view) stall(reason, message string) {
	v.report(reason, message)
	v.stalled = true
}

// Refused returns the status that says that a write was refused, and when to look again.
// The release stands where it stood, and its pods are counted as they were observed. If
// the round has failed before that, o has no Deployment: the counts stay.
func Refused(o Observed, err error, now time.Time) (v1alpha1.BatchReleaseStatus, time.Duration) {
	v := newView(&o, now)
	v.followClock()
	v.observeApproval() // it is for the steps of now, whenever the gate opens
	v.stall(ReasonWriteRefused, err.Error())
	held := meta.IsStatusConditionTrue(v.status.Conditions, ConditionHeld)
	v.status.ObservedGeneration = o.Release.Generation
	v.count()
	v.clock()
	v.conditions()
	if v.d == nil && held {
		v.condition(ConditionHeld, metav1.ConditionTrue, ReasonHeld, "the native controller is kept off")
	}
	v.wait = refusedInterval
	v.pace()
	return v.status, v.wait
}

// count counts the pods of the Deployment and those of the revision that the status is
// about. It changes nothing if there is no Deployment, or if another plan governs it.
func (v *view) count() {
	r := v.counted()
	if r == nil {
		return
	}
	g := newSet(*r).clamp()
	v.status.Replicas = replicas(v.d)
	v.status.UpdatedReplicas, v.status.UpdatedReadyReplicas, v.status.UpdatedAvailableReplicas = 0, g.ready, g.available
	if r.rs != nil { // its size is what is wanted, and not what is there
		v.status.UpdatedReplicas = min(g.size, r.rs.Status.Replicas)
	}
}

// counted returns the revision whose pods are counted. It is the goal or, in a round that
// has resolved none, the revision that the status names.
func (v *view) counted() *revision {
	switch {
	case v.d == nil || v.Rival != "":
		return nil
	case v.goal != nil:
		return v.goal
	case v.status.UpdateTemplateDigest == "":
		return nil
	}
	if record := v.recordSent(v.status.UpdateTemplateDigest); record != nil {
		return revisionOfRecord(v.Observed, record)
	}
	return nil
}

func (v *view) condition(name string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&v.status.Conditions, metav1.Condition{
		Type: name, Status: status, Reason: reason, Message: message,
		ObservedGeneration: v.Release.Generation, LastTransitionTime: *v.time(),
	})
}

func (v *view) reasonUnderWay() string {
	if v.status.RollingBack {
		return ReasonRollingBack
	}
	return ReasonUpgrading
}

// progress is the sentence on where the pods are. The size of a ReplicaSet is what is
// wanted: pods run that are ready.
func (v *view) progress() string {
	g := newSet(*v.goal).clamp()
	s := fmt.Sprintf("%d of %d pods run %s", g.ready, v.replicas, v.goal.name)
	if g.available < g.ready {
		s += fmt.Sprintf(", %d of them available", g.available)
	}
	if g.ready < g.size {
		s += fmt.Sprintf(", %d wanted", g.size)
	}
	if v.Pods != nil && v.Pods.Cause != "" {
		s += ": " + v.Pods.Cause
	}
	return s + v.deletions()
}

// isUnready reports whether fewer pods are ready than are wanted.
func (v *view) isUnready() bool {
	g := newSet(*v.goal).clamp()
	return g.ready < g.size
}

// end records the release in the history when a new release or a rollback replaces it.
func (v *view) end() {
	if v.status.Phase == "" || v.status.Phase == v1alpha1.PhaseCompleted || v.status.UpdateRevision == "" { // or it was refused unnamed
		return
	}
	if v.status.RollingBack {
		v.spend()
		return
	}
	outcome := v1alpha1.OutcomeSuperseded
	if !v.forward() {
		outcome = v1alpha1.OutcomeRolledBack
	} else {
		v.event(ReasonReleaseSuperseded, fmt.Sprintf("%s by %s", v.status.UpdateRevision, v.goal.name))
	}
	v.archive(outcome)
}

func (v *view) archive(outcome v1alpha1.ReleaseOutcome) {
	record := v1alpha1.ReleaseRecord{
		Revision: v.status.UpdateRevision, Commit: v.status.UpdateCommit, Outcome: outcome,
		StartTime: v.status.StartTime, EndTime: *v.time(), Approvals: v.status.Approvals, Rollback: v.status.RollingBack,
	}
	v.spend()
	v.status.History = append([]v1alpha1.ReleaseRecord{record}, v.status.History...)
	if len(v.status.History) > keptReleases {
		v.status.History = v.status.History[:keptReleases]
	}
}

// spend notes that the release has ended: its approvals open no gate again (I5).
func (v *view) spend() {
	if a := v.status.Approval; a != nil && v.ours(&a.Approval) {
		a.Spent = true
	}
	ended := v1alpha1.ReleaseName{Revision: v.status.UpdateRevision, Commit: v.status.UpdateCommit}
	if ended.Commit == "" || slices.Contains(v.status.EndedReleases, ended) {
		return
	}
	v.status.EndedReleases = append([]v1alpha1.ReleaseName{ended}, v.status.EndedReleases...)
	v.status.EndedReleases = v.status.EndedReleases[:min(len(v.status.EndedReleases), keptEnded)]
}

// complete records a release in the history once the Deployment is handed back, and
// reports what runs. A rollback to the revision that stayed stable is no release of its
// own.
func (v *view) complete() {
	switch {
	case v.status.Phase == "" || v.status.Phase == v1alpha1.PhaseCompleted:
	case !v.isGoal():
		v.end()
	case v.status.RollingBack && v.status.StableRevision == v.status.UpdateRevision:
		v.spend()
		v.event(ReasonRolledBack, "all pods run "+v.goal.name)
	case v.status.RollingBack:
		v.archive(v1alpha1.OutcomeCompleted)
		v.event(ReasonRolledBack, "all pods run "+v.goal.name+" again")
	default:
		v.archive(v1alpha1.OutcomeCompleted)
		v.event(ReasonReleaseCompleted, "all pods run "+v.goal.name)
	}
	if !v.failed() {
		v.clearFailed()
	}
	if v.status.Phase != v1alpha1.PhaseCompleted {
		v.status.Phase = v1alpha1.PhaseCompleted
		v.status.CurrentStepIndex = int32(len(v.spec.Strategy.Steps) - 1)
		v.setState(v1alpha1.StepCompleted)
	}
	v.status.CurrentStepReplicas, v.status.ProgressTime, v.status.StartTime = nil, nil, nil
	v.status.Approvals, v.status.RequestedApproval, v.status.BestAvailableReplicas, v.status.RollingBack = nil, nil, 0, false
	v.status.OpenedReplicas, v.status.BeganFull, v.status.CurrentStepTarget, v.status.CurrentStepLostSeconds = nil, false, 0, 0
	v.status.StableRevision, v.status.UpdateRevision = v.goal.name, v.goal.name
	v.status.UpdateTemplateDigest, v.status.UpdateCommit = v.goal.id, v.spec.Commit
	switch {
	case v.failed():
		v.stall(ReasonRolledBack, fmt.Sprintf("%s was rolled back to %s; it is not tried again until another template or commit comes", v.status.FailedRevision, v.goal.name))
	case v.brought == nil:
		v.report(ReasonTemplateMissing, "spec.template is empty: there is nothing to release")
	default:
		v.report(ReasonReleaseCompleted, "all pods run "+v.goal.name)
	}
}

// decision sums the round up.
func (v *view) decision() Decision {
	v.warnOfApproval()
	v.count()
	v.status.ObservedGeneration = v.Release.Generation
	v.clock()
	if v.kept { // a round that reports nothing has the message of the last one
		v.status.Message = strings.TrimSuffix(v.status.Message, keptBehind) + keptBehind
	}
	v.conditions()
	v.pace()
	return Decision{
		Actions: v.actions, Status: v.status, Events: v.events, Wait: v.wait, NeedsPods: v.needsPods, Unready: v.unready && v.Pods == nil,
	}
}

// keptBehind is said where [view.keep] lets another release wait.
const keptBehind = "; spec brings another release, which waits while annotation " + v1alpha1.AnnotationReconcile + " of the Deployment is " + v1alpha1.AnnotationReconcileDisabled

// conditions computes all conditions.
func (v *view) conditions() {
	ready := v.status.Phase == v1alpha1.PhaseCompleted && !v.stalled && !v.unreleased && v.d != nil && v.status.Reason != ReasonDeploymentNotFound
	v.condition(ConditionReady, truth(ready), v.status.Reason, v.status.Message)
	leftAlone := v.unreleased && v.status.Reason == ReasonReleasePaused
	v.condition(ConditionReconciling, truth(!ready && !v.stalled && !leftAlone), v.status.Reason, v.status.Message)
	v.condition(ConditionStalled, truth(v.stalled), v.status.Reason, v.status.Message)
	if v.heldAfter() {
		v.condition(ConditionHeld, metav1.ConditionTrue, ReasonHeld, "the native controller is kept off")
	} else {
		v.condition(ConditionHeld, metav1.ConditionFalse, ReasonNotHeld, "the Deployment is native")
	}
}

// heldAfter reports whether the Deployment is held, and no hand-back is among
// the actions. A hold that is just being taken is said with the next status,
// which the native controller's look at it brings a moment later.
func (v *view) heldAfter() bool {
	return v.d != nil && v.touched() && !slices.ContainsFunc(v.actions, func(a Action) bool { _, ok := a.(HandBack); return ok })
}

func truth(b bool) metav1.ConditionStatus {
	if b {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

// warnOfApproval tells of an approval that is for another release, when the
// spec is first seen.
func (v *view) warnOfApproval() {
	a := v.spec.Approval
	if a == nil || v.kept || v.Release.Generation == v.Release.Status.ObservedGeneration || v.status.Phase == v1alpha1.PhaseCompleted || v.ours(a) {
		return
	}
	v.warn(ReasonApprovalIgnored, fmt.Sprintf("it is for revision %s, commit %q; the release is %s, commit %q",
		a.Revision, a.Commit, v.status.UpdateRevision, v.status.UpdateCommit))
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
