package report

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/outcome"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// SourceNews is that a branch can no longer be followed, or that it can again.
type SourceNews struct {
	// Namespace and Name of the GitSource.
	Namespace, Name string
	// Failed: a person has to do something. Else the tip of the branch is applied.
	Failed bool
	// Message is the reason of the condition Ready, and its message.
	Message string
	// Commit is the one that is refused, or that is applied; empty where the branch
	// could not be read.
	Commit string
	// Author of Commit, and its page at the forge; empty: not known.
	Author, Link string
}

// patientFor is how long a failure that may pass by itself is not reported.
const patientFor = 5 * time.Minute

// notifySource notifies of a failure when it is another one than before, and of its end. A
// failure that was notified before a restart is known by the condition.
func (w *Writer) notifySource(o *outcome.Outcome, was []metav1.Condition) {
	if w.Notify == nil || o.Suspended || o.Ending {
		return
	}
	before := meta.FindStatusCondition(was, v1alpha1.ConditionReady)
	if w.Known.failure == "" && meta.IsStatusConditionTrue(was, v1alpha1.ConditionStalled) && before != nil {
		w.Known.failure = before.Reason + ": " + before.Message
	}
	n := w.sourceNews(o)
	if n == nil {
		return
	}
	w.Known.failure = ""
	if n.Failed {
		w.Known.failure = n.Message
	}
	if o.Author == "" && n.Failed {
		n.Commit = "" // the branch could not be read: no commit is to blame
	}
	if n.Commit != "" {
		n.Author = o.Author
	}
	n.Link = desired.CommitPage(w.Source.Spec.URL, n.Commit)
	w.Notify(*n)
}

// sourceNews returns what differs from the failure that was notified; nil: nothing does.
func (w *Writer) sourceNews(o *outcome.Outcome) *SourceNews {
	status := &w.Source.Status
	ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || w.Known.failure == "" && !w.hasFailed(o, ready) {
		return nil
	}
	n := &SourceNews{Namespace: w.Source.Namespace, Name: w.Source.Name}
	if ready.Status == metav1.ConditionTrue {
		n.Message, n.Commit = ready.Message, status.AppliedCommit
		return n
	}
	n.Failed, n.Message = true, ready.Reason+": "+ready.Message
	if !w.hasFailed(o, ready) || w.Known.failure == n.Message {
		return nil
	}
	if meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionStalled) {
		n.Commit = o.Commit // else another try may apply it
	}
	return n
}

// hasFailed reports whether a person has to learn of what Ready says. That is at once
// if only a person can end it, and after a while if it did not pass by itself.
func (w *Writer) hasFailed(o *outcome.Outcome, ready *metav1.Condition) bool {
	if ready.Status != metav1.ConditionFalse || len(o.Problems) == 0 && !o.Overdue {
		return false
	}
	stalled := meta.IsStatusConditionTrue(w.Source.Status.Conditions, v1alpha1.ConditionStalled)
	return stalled || time.Since(ready.LastTransitionTime.Time) >= patientFor
}
