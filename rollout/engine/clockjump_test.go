package engine

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// The clock of the controller's machine jumps by an hour, four minutes after a step
// began: its pause of ten minutes ends at the time of day that the message names, no
// other gate opens, and no deadline is missed because of it.
func TestClockJumps(t *testing.T) {
	for _, tc := range []struct {
		name, why string
		state     v1alpha1.StepState
		after     time.Duration
		step      int32
		reason    string
		wait      time.Duration
	}{
		{"a pause, an hour back", "it goes on at the named time, later than in ten minutes", v1alpha1.StepBlocking, 4*time.Minute - time.Hour, 0, ReasonWaitingForPause, time.Hour + 6*time.Minute},
		{"a pause, and the clock put right", "as without the jump", v1alpha1.StepBlocking, 9 * time.Minute, 0, ReasonWaitingForPause, time.Minute},
		{"a pause, an hour ahead", "the named time is past; one gate opens, and the next one waits", v1alpha1.StepBlocking, time.Hour + 4*time.Minute, 1, ReasonUpgrading, 150 * time.Second},
		{"a deadline, an hour back", "it runs longer, and ends at its time of day", v1alpha1.StepUpgrade, 4*time.Minute - time.Hour, 0, ReasonUpgrading, 150 * time.Second},
		{"a deadline, an hour ahead", "time in which no controller wrote does not count", v1alpha1.StepUpgrade, time.Hour + 4*time.Minute, 0, ReasonUpgrading, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan := steps("20%", "50%", "100%")
			plan[0].Pause = &v1alpha1.Pause{Duration: metav1.Duration{Duration: 10 * time.Minute}}
			plan[1].Pause = plan[0].Pause
			w := at(0, tc.state, 2, plan...)
			if tc.state == v1alpha1.StepUpgrade {
				w.sets[1].ready, w.sets[1].statusReady, w.sets[1].pending = 1, 1, 1
				w.status.BestAvailableReplicas = 1
				w.status.Reason, w.status.LastUpdateTime = ReasonUpgrading, &metav1.Time{Time: epoch.Add(3 * time.Minute)}
				w.spec.Strategy.OnFailure = v1alpha1.FailureRollback
			}
			d := Decide(w.observe(), epoch.Add(tc.after))
			s := d.Status
			if s.CurrentStepIndex != tc.step || s.Reason != tc.reason || s.RollingBack || s.FailedRevision != "" || tc.wait != 0 && d.Wait != tc.wait {
				t.Errorf("%s: step %d, %s, wait %s, rolling back %t; want step %d, %s, wait %s", tc.why, s.CurrentStepIndex, s.Reason, d.Wait, s.RollingBack, tc.step, tc.reason, tc.wait)
			}
			named := epoch.Add(10 * time.Minute).UTC().Format(time.TimeOnly)
			if tc.reason == ReasonWaitingForPause && !strings.Contains(s.Message, named) {
				t.Errorf("%s: %q does not name %s", tc.why, s.Message, named)
			}
		})
	}
}
