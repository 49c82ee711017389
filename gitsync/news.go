package gitsync

import (
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/gitobject"
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

// tellSource tells of a failure when it is another one than before, and of its end. A
// failure that was notified before a restart is known by the condition.
func (l *look) tellSource(was []metav1.Condition) {
	if l.options.Tell == nil || l.outcome.Suspended || l.outcome.Ending {
		return
	}
	n := SourceNews{Namespace: l.name.Namespace, Name: l.name.Name, Commit: l.outcome.Commit, Author: l.outcome.Author}
	ready := meta.FindStatusCondition(l.gs.Status.Conditions, v1alpha1.ConditionReady)
	before := meta.FindStatusCondition(was, v1alpha1.ConditionReady)
	stuck := meta.IsStatusConditionTrue(was, v1alpha1.ConditionStalled)
	if l.keep.failure == "" && stuck && before != nil {
		l.keep.failure = before.Reason + ": " + before.Message
	}
	if l.outcome.Author == "" {
		n.Commit = "" // the branch could not be read: no commit is to blame
	}
	switch {
	case ready == nil || l.keep.failure == "" && !l.hasFailed(ready):
		return
	case ready.Status == metav1.ConditionTrue:
		n.Message, n.Commit, l.keep.failure = ready.Message, l.gs.Status.AppliedCommit, ""
	case !l.hasFailed(ready) || l.keep.failure == ready.Reason+": "+ready.Message:
		return
	default:
		n.Failed, n.Message = true, ready.Reason+": "+ready.Message
		l.keep.failure = n.Message
		if !meta.IsStatusConditionTrue(l.gs.Status.Conditions, v1alpha1.ConditionStalled) {
			n.Commit = "" // another try may apply it
		}
	}
	l.remember(l.name, l.keep)
	if n.Commit == "" {
		n.Author = ""
	}
	n.Link = desired.CommitPage(l.gs.Spec.URL, n.Commit)
	l.options.Tell(n)
}

// hasFailed reports whether a person has to learn of what Ready says. That is at once
// if only a person can end it, and after a while if it did not pass by itself.
func (l *look) hasFailed(ready *metav1.Condition) bool {
	if ready.Status != metav1.ConditionFalse || len(l.outcome.Problems) == 0 && !l.outcome.Overdue {
		return false
	}
	stalled := meta.IsStatusConditionTrue(l.gs.Status.Conditions, v1alpha1.ConditionStalled)
	return stalled || time.Since(ready.LastTransitionTime.Time) >= patientFor
}

// authorIn is the author of a commit; empty where it is not to be read.
func authorIn(s storer.EncodedObjectStorer, commit plumbing.Hash) string {
	c, err := object.GetCommit(s, commit)
	if err != nil {
		return ""
	}
	return gitobject.AuthorOf(c)
}
