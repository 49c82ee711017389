package report

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/outcome"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// handBackWithin is how long the hand-back of a Deployment may take, unless the input
// says otherwise. rollout needs one write for it.
const handBackWithin = time.Minute

// TimeHandBack notes since when hand-backs are waited for, and whether that is too long. A
// sync that has not come to them ends no wait. After a restart, the condition
// says that it was too long already.
func (w *Writer) TimeHandBack(o *outcome.Outcome, cameToThem bool) {
	if len(o.Waiting) == 0 {
		if cameToThem {
			w.Known.handBack = time.Time{}
		}
		return
	}
	if w.Known.handBack.IsZero() {
		w.Known.handBack = time.Now()
	}
	o.Overdue = isOverdue(w.written.Conditions) || time.Since(w.Known.handBack) >= cmp.Or(w.HandBackWithin, handBackWithin)
}

func isOverdue(conditions []metav1.Condition) bool {
	ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	return ready != nil && ready.Reason == v1alpha1.ReasonHandBackOverdue
}

// notifyOverdue records once that a hand-back takes too long.
func (w *Writer) notifyOverdue(o *outcome.Outcome, was []metav1.Condition) {
	if !o.Overdue || len(o.Problems) > 0 || isOverdue(was) {
		return
	}
	for _, c := range o.AwaitsHandBack(desired.CommitName(o.Branch, o.Commit)) {
		if c.Type == v1alpha1.ConditionStalled {
			w.RecordEvent(Event{Type: corev1.EventTypeWarning, Reason: c.Reason, Message: c.Message, Commit: o.Commit})
		}
	}
}
