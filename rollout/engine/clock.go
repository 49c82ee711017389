package engine

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
	"github.com/tranche-dev/tranche/rollout/engine/position"
	"github.com/tranche-dev/tranche/rollout/engine/verdict"
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
	return (waits || verdict.TimesUnknown(s.Analysis)) && !meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionStalled)
}

// signInterval is how long a status may stand as long as a clock runs, before it is
// written again.
func signInterval(c *position.Course) time.Duration { return max(c.DeadlineLength()/4, shortestSign) }

// followClock moves the times that a clock runs from by as much as the clock has jumped.
// So the time since each stays what it was, also for a process that begins later.
func followClock(d *draft) {
	clocks := []**metav1.Time{}
	if position.Releasing(&d.Status) {
		clocks = append(clocks, &d.Status.StepStateTime, &d.Status.ProgressTime)
		clocks = append(clocks, verdict.Clocks(d.Status.Analysis, true)...)
	}
	if runsClock(&d.Position) || d.Status.Reason == v1alpha1.ReasonWriteRefused { // see resume
		clocks = append(clocks, &d.Status.ReasonTime)
	}
	for _, clock := range clocks {
		*clock = d.AfterJump(*clock)
	}
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
	away := d.Now.Sub(d.AfterJump(old.LastUpdateTime).Time) - signInterval(&d.Course)
	if away > 0 {
		extendClocks(d, away)
	}
}

// excuseRefusal takes the time off the clocks in which a write was refused, or the plan was not
// written by its GitSource. So no release fails, and none is rolled back, for pods that the
// controller was not let ask for.
func excuseRefusal(d *draft) {
	since := d.Status.ReasonTime
	waited := d.Status.Reason == v1alpha1.ReasonWriteRefused || d.Status.Reason == v1alpha1.ReasonWaitingForSource
	if !waited || since == nil || !position.Releasing(&d.Status) {
		return
	}
	if refused := d.Now.Sub(since.Time); refused > 0 {
		extendClocks(d, refused)
	}
}

// extendClocks gives the clocks that run this much more time.
func extendClocks(d *draft, by time.Duration) {
	clocks := []**metav1.Time{&d.Status.ProgressTime}
	if d.Status.CurrentStepState == v1alpha1.StepUpgrade {
		clocks = append(clocks, &d.Status.StepStateTime)
	}
	if runsClock(&d.Position) {
		clocks = append(clocks, &d.Status.ReasonTime)
	}
	clocks = append(clocks, verdict.Clocks(d.Status.Analysis, false)...)
	for _, clock := range clocks {
		if *clock != nil {
			*clock = &metav1.Time{Time: (*clock).Add(by)}
		}
	}
}

// limitWait limits how long the release may wait for the cluster other than for pods, which
// have a deadline of their own. After the same time it is Stalled.
func limitWait(d *draft) {
	if d.Status.Reason != d.Release.Status.Reason || d.Status.ReasonTime == nil {
		d.Status.ReasonTime = d.Time()
	}
	if d.stalled || !runsClock(&d.Position) {
		return
	}
	left := d.DeadlineLength() - d.Now.Sub(d.Status.ReasonTime.Time)
	if left <= 0 {
		d.stall(d.Status.Reason, fmt.Sprintf("%s; this has taken longer than %s: %s", d.Status.Message, d.DeadlineLength(),
			cmp.Or(keptRemedy(&d.Course), remedies[d.Status.Reason],
				"see that the Deployment controller runs and that the writes of this controller stay as they are")))
		if !wasStalled(d.Facts) {
			d.warn(d.Status.Reason, d.Status.Message)
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
func keptRemedy(c *position.Course) string {
	if c.Deployment == nil || c.Deletions() == "" {
		return ""
	}
	return "let its finalizers end, or remove them"
}

// wasStalled reports whether the status before this round was Stalled.
func wasStalled(f *facts.Facts) bool {
	return meta.IsStatusConditionTrue(f.Release.Status.Conditions, v1alpha1.ConditionStalled)
}

// runsClock reports whether [limitWait] limits what the status says.
func runsClock(p *position.Position) bool {
	missing := p.Status.Reason == v1alpha1.ReasonDeploymentNotFound && p.Deployment == nil // see awaitDeletion for the other one
	return waitsForCluster[p.Status.Reason] || missing || p.Status.Reason == v1alpha1.ReasonPodsUnavailable ||
		p.Status.Reason == v1alpha1.ReasonRollingBack && p.Status.CurrentStepState == v1alpha1.StepInitial
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
		age = d.Now.Sub(d.AfterJump(old.LastUpdateTime).Time)
	}
	ticks := clocked(&d.Status)
	switch same := equality.Semantic.DeepEqual(old, d.Status); {
	case same && !ticks:
		return
	case same && age >= 0 && age < signInterval(&d.Course)/2: // of a controller that is started more often no time is excused
		d.wakeIn(signInterval(&d.Course) - age)
		return
	case !same && age >= 0 && age < min(countInterval, signInterval(&d.Course)) &&
		equality.Semantic.DeepEqual(uncounted(old), uncounted(d.Status)):
		d.Status = old
		d.wakeIn(min(countInterval, signInterval(&d.Course)) - age)
		return
	}
	d.Status.LastUpdateTime = d.Time()
	if ticks {
		d.wakeIn(signInterval(&d.Course))
	}
}
