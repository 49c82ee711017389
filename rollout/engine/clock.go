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
	// shortestSign is the least time between two signs of life, see [excuseAbsence].
	shortestSign = 2 * time.Second
)

// waitsForCluster are the reasons for which the release waits for what others do
// at once.
var waitsForCluster = map[string]bool{v1alpha1.ReasonTakingHold: true, v1alpha1.ReasonHandingBack: true, v1alpha1.ReasonNativeRollout: true}

// clocked reports whether a clock runs as long as a status stands: the step's
// deadline, or that of [limitWait].
func clocked(s *v1alpha1.BatchReleaseStatus) bool {
	waits := waitsForCluster[s.Reason] || s.Reason == v1alpha1.ReasonUpgrading || s.Reason == v1alpha1.ReasonRollingBack
	return waits && !meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionStalled)
}

// signInterval is how long a status may stand as long as a clock runs, before it is
// written again.
func signInterval(c *course) time.Duration { return max(c.deadlineLength()/4, shortestSign) }

// followClock moves the times that a clock runs from by as much as the clock has jumped.
// So the time since each stays what it was, also for a process that begins later.
func followClock(d *draft) {
	clocks := []**metav1.Time{}
	if releasing(&d.status) {
		clocks = append(clocks, &d.status.StepStateTime, &d.status.ProgressTime)
	}
	if runsClock(&d.position) || d.status.Reason == v1alpha1.ReasonWriteRefused { // see resume
		clocks = append(clocks, &d.status.ReasonTime)
	}
	for _, clock := range clocks {
		*clock = d.afterJump(*clock)
	}
}

// afterJump returns what the clock of now would have shown at a time of the status. A
// time that lay ahead of the clock before it jumped is from a better clock, and stays. A
// machine may begin with its clock at 1970.
func (f *facts) afterJump(t *metav1.Time) *metav1.Time {
	if t == nil || f.Jumped == 0 || t.After(f.now.Add(-f.Jumped)) {
		return t
	}
	return &metav1.Time{Time: t.Add(f.Jumped)}
}

// excuseAbsence takes the time off the clocks in which no controller ran, or none could
// write. While one runs, the status is written each [signInterval]: what has
// passed since the last write beyond that was such time. So a controller that is
// started again and again gains a release no more time than it was away.
func excuseAbsence(d *draft) {
	old := &d.Release.Status
	if old.LastUpdateTime == nil || !clocked(old) {
		return
	}
	away := d.now.Sub(d.afterJump(old.LastUpdateTime).Time) - signInterval(&d.course)
	if away > 0 {
		extendClocks(d, away)
	}
}

// excuseRefusal takes the time off the clocks in which a write was refused. So no release fails,
// and none is rolled back, for pods that the controller was not let ask for.
func excuseRefusal(d *draft) {
	since := d.status.ReasonTime
	if d.status.Reason != v1alpha1.ReasonWriteRefused || since == nil || !releasing(&d.status) {
		return
	}
	if refused := d.now.Sub(since.Time); refused > 0 {
		extendClocks(d, refused)
	}
}

// extendClocks gives the clocks that run this much more time.
func extendClocks(d *draft, by time.Duration) {
	clocks := []**metav1.Time{&d.status.ProgressTime}
	if d.status.CurrentStepState == v1alpha1.StepUpgrade {
		clocks = append(clocks, &d.status.StepStateTime)
	}
	if runsClock(&d.position) {
		clocks = append(clocks, &d.status.ReasonTime)
	}
	for _, clock := range clocks {
		if *clock != nil {
			*clock = &metav1.Time{Time: (*clock).Add(by)}
		}
	}
}

// limitWait limits how long the release may wait for the cluster other than for pods, which
// have a deadline of their own. After the same time it is Stalled.
func limitWait(d *draft) {
	if d.status.Reason != d.Release.Status.Reason || d.status.ReasonTime == nil {
		d.status.ReasonTime = d.time()
	}
	if d.stalled || !runsClock(&d.position) {
		return
	}
	left := d.deadlineLength() - d.now.Sub(d.status.ReasonTime.Time)
	if left <= 0 {
		d.stall(d.status.Reason, fmt.Sprintf("%s; this has taken longer than %s: %s", d.status.Message, d.deadlineLength(), cmp.Or(keptRemedy(&d.course), remedies[d.status.Reason],
			"see that the Deployment controller runs and that the writes of this controller stay as they are")))
		if !wasStalled(d.facts) {
			d.warn(d.status.Reason, d.status.Message)
		}
		return
	}
	d.wakeIn(left)
}

// remedies are what to do where [limitWait] has run out, by reason.
var remedies = map[string]string{
	v1alpha1.ReasonDeploymentNotFound: "create the Deployment, or correct spec.workloadRef",
	v1alpha1.ReasonPodsUnavailable:    "see the pods, or bring another release",
}

// keptRemedy is what to do where a ReplicaSet that is being deleted is in the way.
func keptRemedy(c *course) string {
	if c.Deployment == nil || c.deletions() == "" {
		return ""
	}
	return "let its finalizers end, or remove them"
}

// wasStalled reports whether the status before this round was Stalled.
func wasStalled(f *facts) bool {
	return meta.IsStatusConditionTrue(f.Release.Status.Conditions, v1alpha1.ConditionStalled)
}

// runsClock reports whether [limitWait] limits what the status says.
func runsClock(p *position) bool {
	missing := p.status.Reason == v1alpha1.ReasonDeploymentNotFound && p.Deployment == nil // see awaitDeletion for the other one
	return waitsForCluster[p.status.Reason] || missing || p.status.Reason == v1alpha1.ReasonPodsUnavailable || p.status.Reason == v1alpha1.ReasonRollingBack && p.status.CurrentStepState == v1alpha1.StepInitial
}

// wakeIn asks for the next round then, or before.
func (d *draft) wakeIn(wait time.Duration) {
	if d.wait == 0 || wait < d.wait {
		d.wait = wait
	}
}

// paceStatus keeps a status that differs only in numbers from being written more than once in
// countInterval. It has a status over which a clock runs written each
// [signInterval], and stamps those that are written.
func paceStatus(d *draft) {
	old := d.Release.Status
	age := countInterval
	if old.LastUpdateTime != nil {
		age = d.now.Sub(d.afterJump(old.LastUpdateTime).Time)
	}
	ticks := clocked(&d.status)
	switch same := equality.Semantic.DeepEqual(old, d.status); {
	case same && !ticks:
		return
	case same && age >= 0 && age < signInterval(&d.course)/2: // of a controller that is started more often no time is excused
		d.wakeIn(signInterval(&d.course) - age)
		return
	case !same && age >= 0 && age < min(countInterval, signInterval(&d.course)) && equality.Semantic.DeepEqual(uncounted(old), uncounted(d.status)):
		d.status = old
		d.wakeIn(min(countInterval, signInterval(&d.course)) - age)
		return
	}
	d.status.LastUpdateTime = d.time()
	if ticks {
		d.wakeIn(signInterval(&d.course))
	}
}
