package engine

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

const (
	// countInterval is the least time between two writes of a status that
	// only counts pods.
	countInterval = 5 * time.Second
	// shortestSign is the least time between two signs of life, see [view.excuse].
	shortestSign = 2 * time.Second
)

// waitsForCluster are the reasons for which the release waits for what others do
// at once.
var waitsForCluster = map[string]bool{ReasonTakingHold: true, ReasonHandingBack: true, ReasonNativeRollout: true}

// clocked reports whether a clock runs as long as a status stands: the step's
// deadline, or that of [view.clock].
func clocked(s *v1alpha1.BatchReleaseStatus) bool {
	waits := waitsForCluster[s.Reason] || s.Reason == ReasonUpgrading || s.Reason == ReasonRollingBack
	return waits && !meta.IsStatusConditionTrue(s.Conditions, ConditionStalled)
}

// signInterval is how long a status may stand as long as a clock runs, before it is
// written again.
func (v *view) signInterval() time.Duration { return max(v.deadlineLength()/4, shortestSign) }

// followClock moves the times that a clock runs from by as much as the clock has jumped.
// So the time since each stays what it was, also for a process that begins later.
func (v *view) followClock() {
	clocks := []**metav1.Time{}
	if releasing(&v.status) {
		clocks = append(clocks, &v.status.StepStateTime, &v.status.ProgressTime)
	}
	if v.runsClock() || v.status.Reason == ReasonWriteRefused { // see resume
		clocks = append(clocks, &v.status.ReasonTime)
	}
	for _, clock := range clocks {
		*clock = v.afterJump(*clock)
	}
}

// afterJump returns what the clock of now would have shown at a time of the status. A
// time that lay ahead of the clock before it jumped is from a better clock, and stays. A
// machine may begin with its clock at 1970.
func (v *view) afterJump(t *metav1.Time) *metav1.Time {
	if t == nil || v.Jumped == 0 || t.After(v.now.Add(-v.Jumped)) {
		return t
	}
	return &metav1.Time{Time: t.Add(v.Jumped)}
}

// excuse takes the time off the clocks in which no controller ran, or none could
// write. While one runs, the status is written each [view.signInterval]: what has
// passed since the last write beyond that was such time. So a controller that is
// started again and again gains a release no more time than it was away.
func (v *view) excuse() {
	old := &v.Release.Status
	if old.LastUpdateTime == nil || !clocked(old) {
		return
	}
	away := v.now.Sub(v.afterJump(old.LastUpdateTime).Time) - v.signInterval()
	if away > 0 {
		v.extend(away)
	}
}

// resume takes the time off the clocks in which a write was refused. So no release fails,
// and none is rolled back, for pods that the controller was not let ask for.
func (v *view) resume() {
	since := v.status.ReasonTime
	if v.status.Reason != ReasonWriteRefused || since == nil || !releasing(&v.status) {
		return
	}
	if refused := v.now.Sub(since.Time); refused > 0 {
		v.extend(refused)
	}
}

// extend gives the clocks that run this much more time.
func (v *view) extend(by time.Duration) {
	clocks := []**metav1.Time{&v.status.ProgressTime}
	if v.status.CurrentStepState == v1alpha1.StepUpgrade {
		clocks = append(clocks, &v.status.StepStateTime)
	}
	if v.runsClock() {
		clocks = append(clocks, &v.status.ReasonTime)
	}
	for _, clock := range clocks {
		if *clock != nil {
			*clock = &metav1.Time{Time: (*clock).Add(by)}
		}
	}
}

// clock limits how long the release may wait for the cluster other than for pods, which
// have a deadline of their own. After the same time it is Stalled.
func (v *view) clock() {
	if v.status.Reason != v.Release.Status.Reason || v.status.ReasonTime == nil {
		v.status.ReasonTime = v.time()
	}
	if v.stalled || !v.runsClock() {
		return
	}
	left := v.deadlineLength() - v.now.Sub(v.status.ReasonTime.Time)
	if left <= 0 {
		v.stall(v.status.Reason, fmt.Sprintf("%s; this has taken longer than %s: %s", v.status.Message, v.deadlineLength(), cmp.Or(v.keptRemedy(), remedies[v.status.Reason],
			"see that the Deployment controller runs and that the writes of this controller stay as they are")))
		if !v.wasStalled() {
			v.warn(v.status.Reason, v.status.Message)
		}
		return
	}
	v.wakeIn(left)
}

// remedies are what to do where [view.clock] has run out, by reason.
var remedies = map[string]string{
	ReasonDeploymentNotFound: "create the Deployment, or correct spec.workloadRef",
	ReasonPodsUnavailable:    "see the pods, or bring another release",
}

// keptRemedy is what to do where a ReplicaSet that is being deleted is in the way.
func (v *view) keptRemedy() string {
	if v.d == nil || v.deletions() == "" {
		return ""
	}
	return "let its finalizers end, or remove them"
}

func (v *view) wasStalled() bool {
	return meta.IsStatusConditionTrue(v.Release.Status.Conditions, ConditionStalled)
}

// runsClock reports whether [view.clock] limits what the status says.
func (v *view) runsClock() bool {
	missing := v.status.Reason == ReasonDeploymentNotFound && v.d == nil // see awaitDeletion for the other one
	return waitsForCluster[v.status.Reason] || missing || v.status.Reason == ReasonPodsUnavailable || v.status.Reason == ReasonRollingBack && v.status.CurrentStepState == v1alpha1.StepInitial
}

// wakeIn asks for the next round then, or before.
func (v *view) wakeIn(d time.Duration) {
	if v.wait == 0 || d < v.wait {
		v.wait = d
	}
}

// pace keeps a status that differs only in numbers from being written more than once in
// countInterval. It has a status over which a clock runs written each
// [view.signInterval], and stamps those that are written.
func (v *view) pace() {
	old := v.Release.Status
	age := countInterval
	if old.LastUpdateTime != nil {
		age = v.now.Sub(v.afterJump(old.LastUpdateTime).Time)
	}
	ticks := clocked(&v.status)
	switch same := equality.Semantic.DeepEqual(old, v.status); {
	case same && !ticks:
		return
	case same && age >= 0 && age < v.signInterval()/2: // of a controller that is started more often no time is excused
		v.wakeIn(v.signInterval() - age)
		return
	case !same && age >= 0 && age < min(countInterval, v.signInterval()) && equality.Semantic.DeepEqual(uncounted(old), uncounted(v.status)):
		v.status = old
		v.wakeIn(min(countInterval, v.signInterval()) - age)
		return
	}
	v.status.LastUpdateTime = v.time()
	if ticks {
		v.wakeIn(v.signInterval())
	}
}
