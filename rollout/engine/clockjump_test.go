package engine_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// The clock of the controller's machine jumps by an hour, four minutes after a step
// began. Its pause and its deadline of ten minutes have run for four minutes, and no
// other gate opens. A process that begins after the jump knows nothing of it: then the
// pause ends at the time of day that the message names.
func TestClockJumps(t *testing.T) {
	for _, tc := range []struct {
		name, why string
		state     v1alpha1.StepState
		jumped    time.Duration // as the process saw it
		now       time.Duration // what the clock shows, from when the step began
		step      int32
		reason    string
		wait      time.Duration
	}{
		{"a pause, an hour back", "six minutes are left", v1alpha1.StepBlocking, -time.Hour, 4*time.Minute - time.Hour, 0, v1alpha1.ReasonWaitingForPause, 6 * time.Minute},
		{"a pause, an hour ahead", "six minutes are left", v1alpha1.StepBlocking, time.Hour, 4*time.Minute + time.Hour, 0, v1alpha1.ReasonWaitingForPause, 6 * time.Minute},
		{"a pause that is over, an hour back", "it ends, and the next step begins", v1alpha1.StepBlocking, -time.Hour, 10*time.Minute - time.Hour, 1, v1alpha1.ReasonUpgrading, 150 * time.Second},
		{"a pause that began by a better clock, and this one is put right", "six minutes are left", v1alpha1.StepBlocking, time.Hour, 4 * time.Minute, 0, v1alpha1.ReasonWaitingForPause, 6 * time.Minute},
		{"a pause, an hour back, and a restart", "it ends at the named time, later than in ten minutes", v1alpha1.StepBlocking, 0, 4*time.Minute - time.Hour, 0, v1alpha1.ReasonWaitingForPause, time.Hour + 6*time.Minute},
		{"a pause, an hour back, a restart, and the clock put right", "as without the jump", v1alpha1.StepBlocking, time.Hour, 9 * time.Minute, 0, v1alpha1.ReasonWaitingForPause, time.Minute},
		{"a pause, an hour ahead, and a restart", "the named time is past; one gate opens, and the next one waits", v1alpha1.StepBlocking, 0, time.Hour + 4*time.Minute, 1, v1alpha1.ReasonUpgrading, 150 * time.Second},
		{"a deadline, an hour back", "six minutes are left", v1alpha1.StepUpgrade, -time.Hour, 4*time.Minute - time.Hour, 0, v1alpha1.ReasonUpgrading, 150 * time.Second},
		{"a deadline that is over, an hour back", "it is missed", v1alpha1.StepUpgrade, -time.Hour, 10*time.Minute - time.Hour, 0, v1alpha1.ReasonProgressDeadlineExceeded, 0},
		{"a deadline, an hour ahead", "six minutes are left", v1alpha1.StepUpgrade, time.Hour, time.Hour + 4*time.Minute, 0, v1alpha1.ReasonUpgrading, 150 * time.Second},
		{"a deadline, an hour ahead, and a restart", "time in which no controller wrote does not count", v1alpha1.StepUpgrade, 0, time.Hour + 4*time.Minute, 0, v1alpha1.ReasonUpgrading, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan := steps("20%", "50%", "100%")
			plan[0].Pause = &v1alpha1.Pause{Duration: metav1.Duration{Duration: 10 * time.Minute}}
			plan[1].Pause = plan[0].Pause
			w := at(0, tc.state, 2, plan...)
			if tc.state == v1alpha1.StepUpgrade {
				w.sets[1].ready, w.sets[1].statusReady, w.sets[1].pending = 1, 1, 1
				w.status.BestAvailableReplicas = 1
				written := tc.now - tc.jumped - time.Minute
				if tc.jumped == 0 { // by the process before
					written = 3 * time.Minute
				}
				w.status.Reason, w.status.LastUpdateTime = v1alpha1.ReasonUpgrading, &metav1.Time{Time: epoch.Add(written)}
			}
			now := epoch.Add(tc.now)
			o := w.observe()
			o.Jumped = tc.jumped
			d := engine.Decide(o, now)
			s := d.Status
			if s.CurrentStepIndex != tc.step || s.Reason != tc.reason || s.RollingBack || s.FailedRevision != "" || tc.wait != 0 && d.Wait != tc.wait {
				t.Errorf("%s: step %d, %s, wait %s, rolling back %t; want step %d, %s, wait %s", tc.why, s.CurrentStepIndex, s.Reason, d.Wait, s.RollingBack, tc.step, tc.reason, tc.wait)
			}
			named := now.Add(tc.wait).UTC().Format(time.TimeOnly)
			if tc.reason == v1alpha1.ReasonWaitingForPause && !strings.Contains(s.Message, named) {
				t.Errorf("%s: %q does not name %s", tc.why, s.Message, named)
			}
			w.status = stored(s)
			if after := engine.Decide(w.observe(), now).Status; after.CurrentStepIndex != tc.step || after.Reason != tc.reason {
				t.Errorf("%s: another process is at step %d, %s", tc.why, after.CurrentStepIndex, after.Reason)
			}
		})
	}
}

// No clock runs for a Deployment without a release under way: a jump writes nothing.
func TestClockJumps_AtRest(t *testing.T) {
	w := newWorld(10, 3, 2)
	for range 3 {
		w.status = stored(engine.Decide(w.observe(), epoch).Status)
	}
	for _, jumped := range []time.Duration{time.Hour, -time.Hour} {
		o := w.observe()
		o.Jumped = jumped
		if d := engine.Decide(o, epoch.Add(jumped)); !d.Status.LastUpdateTime.Equal(w.status.LastUpdateTime) {
			t.Errorf("%s: the status was written: %s", jumped, d.Status.Message)
		}
	}
}
