package gitsync

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// handBackWithin is how long the hand-back of a Deployment may take, unless the options
// say otherwise. rollout needs one write for it.
const handBackWithin = time.Minute

// timeHandBack notes since when hand-backs are waited for, and whether that is too long. A
// sync that failed before it came to them ends no wait. After a restart, the condition
// says that it was too long already.
func (l *look) timeHandBack(err error) {
	if len(l.outcome.Waiting) == 0 {
		if err == nil && l.rendering.Busy() == nil {
			l.keep.handBack = time.Time{}
		}
		return
	}
	if l.keep.handBack.IsZero() {
		l.keep.handBack = time.Now()
	}
	l.outcome.Overdue = l.wasOverdue() || time.Since(l.keep.handBack) >= cmp.Or(l.options.HandBackWithin, handBackWithin)
}

func (l *look) wasOverdue() bool {
	ready := meta.FindStatusCondition(l.before.Conditions, v1alpha1.ConditionReady)
	return ready != nil && ready.Reason == v1alpha1.ReasonHandBackOverdue
}

// tellOverdue tells once of a hand-back that takes too long.
func (l *look) tellOverdue() {
	if !l.outcome.Overdue || len(l.outcome.Problems) > 0 || l.wasOverdue() {
		return
	}
	for _, c := range l.outcome.AwaitsHandBack(desired.CommitName(l.outcome.Branch, l.outcome.Commit)) {
		if c.Type == v1alpha1.ConditionStalled {
			l.tell(corev1.EventTypeWarning, c.Reason, c.Message)
		}
	}
}
