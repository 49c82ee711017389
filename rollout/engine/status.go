package engine

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
	"github.com/tranche-dev/tranche/rollout/engine/position"
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
	d.Status.Reason, d.Status.Message, d.stalled = reason, message, false
}

// stall says the same of what does not go on without a person.
func (d *draft) stall(reason, message string) {
	d.report(reason, message)
	d.stalled = true
}

// countPods counts the pods of the Deployment and those of the revision that the status is
// about. It changes nothing if there is no Deployment, or if another plan governs it.
func countPods(d *draft) {
	r := position.Counted(&d.Position)
	if r == nil {
		return
	}
	g := position.NewSet(*r).Clamp()
	d.Status.Replicas = facts.Replicas(d.Deployment)
	d.Status.UpdatedReplicas, d.Status.UpdatedReadyReplicas, d.Status.UpdatedAvailableReplicas = 0, g.Ready, g.Available
	if r.ReplicaSet != nil { // its size is what is wanted, and not what is there
		d.Status.UpdatedReplicas = min(g.Size, r.ReplicaSet.Status.Replicas)
	}
}

func (d *draft) condition(name string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&d.Status.Conditions, metav1.Condition{
		Type: name, Status: status, Reason: reason, Message: message,
		ObservedGeneration: d.Release.Generation, LastTransitionTime: *d.Time(),
	})
}

// conclude sums the round up.
func conclude(d *draft) Decision {
	takeBackMarks(d)
	warnOfApproval(d)
	countPods(d)
	d.Status.ObservedGeneration = d.Release.Generation
	limitWait(d)
	if d.analysisWait > 0 {
		d.wakeIn(d.analysisWait)
	}
	if d.Kept { // a round that reports nothing has the message of the last one
		d.Status.Message = strings.TrimSuffix(d.Status.Message, keptBehind) + keptBehind
	}
	setConditions(d)
	paceStatus(d)
	return Decision{
		Actions: d.actions, Status: d.Status, Events: d.events, Wait: d.wait, NeedsPods: d.needsPods, Unready: d.unready && d.Pods == nil,
		Measure: missingMeasurements(d), Growth: d.growth, NeedsReady: d.needsReady,
	}
}

// keptBehind is said where [Course.keep] lets another release wait.
const keptBehind = "; spec brings another release, which waits while annotation " + v1alpha1.AnnotationReconcile +
	" of the Deployment is " + v1alpha1.AnnotationReconcileDisabled

// setConditions computes all conditions.
func setConditions(d *draft) {
	ready := d.Status.Phase == v1alpha1.PhaseCompleted && !d.stalled && !d.unreleased && d.Deployment != nil &&
		d.Status.Reason != v1alpha1.ReasonDeploymentNotFound
	d.condition(v1alpha1.ConditionReady, truth(ready), d.Status.Reason, d.Status.Message)
	leftAlone := d.unreleased && d.Status.Reason == v1alpha1.ReasonReleasePaused
	d.condition(v1alpha1.ConditionReconciling, truth(!ready && !d.stalled && !leftAlone), d.Status.Reason, d.Status.Message)
	d.condition(v1alpha1.ConditionStalled, truth(d.stalled), d.Status.Reason, d.Status.Message)
	if d.heldAfter() {
		d.condition(v1alpha1.ConditionHeld, metav1.ConditionTrue, v1alpha1.ReasonHeld, "the native controller is kept off")
	} else {
		d.condition(v1alpha1.ConditionHeld, metav1.ConditionFalse, v1alpha1.ReasonNotHeld, "the Deployment is native")
	}
}

// heldAfter reports whether the Deployment is held, and neither a hand-back nor the end of
// a label by hand is among the actions. A hold that is just being taken is said with the next status,
// which the native controller's look at it brings a moment later.
func (d *draft) heldAfter() bool {
	return d.Deployment != nil && d.Touched() && !slices.ContainsFunc(d.actions, func(a Action) bool {
		switch a.(type) {
		case HandBack, Unlabel:
			return true
		}
		return false
	})
}

func truth(b bool) metav1.ConditionStatus {
	if b {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

// uncounted returns a status without what only counts. The condition Held is left to the next status.
func uncounted(s v1alpha1.BatchReleaseStatus) v1alpha1.BatchReleaseStatus {
	s = *s.DeepCopy()
	s.Replicas, s.UpdatedReplicas, s.UpdatedReadyReplicas, s.UpdatedAvailableReplicas, s.BestAvailableReplicas = 0, 0, 0, 0, 0
	s.Message, s.ProgressTime, s.LastUpdateTime = "", nil, nil
	meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionHeld)
	for i := range s.Conditions {
		s.Conditions[i].Message = ""
	}
	return s
}
