package rollout_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout"
	"github.com/tranche-dev/tranche/rollout/clustertest"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// jumpingClock is the clock of a machine, which a test sets.
type jumpingClock struct {
	mu    sync.Mutex
	ahead time.Duration
	still time.Time // the clock stands still there; zero: it runs
	read  int
}

func (c *jumpingClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read++
	if !c.still.IsZero() {
		return c.still.Add(c.ahead)
	}
	return time.Now().Add(c.ahead)
}

func (c *jumpingClock) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

func (c *jumpingClock) reads() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read
}

// rounds waits until the release has been reconciled with the clock as it is. The second
// of two rounds begins when the first one has ended.
func (s *shop) rounds(c *jumpingClock) {
	s.Helper()
	for i := range 3 {
		before := c.reads()
		s.kubectl("label", "batchrelease/web", "-n", s.ns, "--overwrite", fmt.Sprintf("round=%d-%d", i, before))
		clustertest.Wait(s, "a round", func() error {
			if c.reads() == before {
				return fmt.Errorf("the clock was read %d times", before)
			}
			return nil
		})
	}
}

// stays fails the test where a round changes the sizes, or what the release waits for.
func (s *shop) stays(c *jumpingClock, why string, step int32, sizes map[string]int32) {
	s.Helper()
	s.rounds(c)
	if at, got := s.release().Status, s.sizes(); fmt.Sprint(got) != fmt.Sprint(sizes) || at.Reason != engine.ReasonWaitingForPause || at.CurrentStepIndex != step {
		s.Errorf("%s: %s at step %d, sizes %v, want %v", why, at.Reason, at.CurrentStepIndex, got, sizes)
	}
}

// The clock of a running controller jumps by an hour, four minutes into a pause of ten.
// The watcher of the invariants is not asked: its clock does not jump.
func TestClockJumps_Controller(t *testing.T) {
	t.Parallel()
	v1 := func(old, update int32) map[string]int32 { return map[string]int32{"v1": old, "v2": update} }
	for name, jump := range map[string]func(*shop, *jumpingClock){
		"back": func(s *shop, c *jumpingClock) {
			c.jump(-time.Hour)
			s.stays(c, "the pause does not begin again, and does not end", 0, v1(3, 1))
			c.jump(time.Hour + 5*time.Minute)
			s.stays(c, "the clock is right again, after nine minutes", 0, v1(3, 1))
			c.jump(time.Minute)
			s.rounds(c)
			s.waitFor(engine.ReasonWaitingForPause, 1, v1(2, 2))
		},
		"back, and stays there": func(s *shop, c *jumpingClock) {
			c.jump(-time.Hour)
			s.stays(c, "it ends at the time of day that its message named", 0, v1(3, 1))
			c.jump(time.Hour + 6*time.Minute)
			s.rounds(c)
			s.waitFor(engine.ReasonWaitingForPause, 1, v1(2, 2))
			s.stays(c, "the next pause is whole", 1, v1(2, 2))
		},
		"ahead": func(s *shop, c *jumpingClock) {
			c.jump(time.Hour)
			s.rounds(c)                                          // without one it ends when its timer does, which does not jump
			s.waitFor(engine.ReasonWaitingForPause, 1, v1(2, 2)) // the time that was named is past
			s.stays(c, "one gate opens by a jump, and no other", 1, v1(2, 2))
			c.jump(9 * time.Minute)
			s.stays(c, "the next pause is whole", 1, v1(2, 2))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := clustertest.Shared(t)
			s := &shop{T: t, c: c, ns: c.Namespace(t)}
			clock := &jumpingClock{}
			startReconciler(t, s.c, s.ns, rollout.Options{Concurrent: 50, Now: clock.now}, func(*ctrl.Options) {})
			s.install(4)
			s.plan("1", "2", "100%")
			s.edit(func(spec *v1alpha1.BatchReleaseSpec) {
				for i := range 2 {
					spec.Strategy.Steps[i].Pause = &v1alpha1.Pause{Duration: metav1.Duration{Duration: 10 * time.Minute}}
				}
				spec.Strategy.OnFailure = v1alpha1.FailureRollback
			})
			s.waitFor(engine.ReasonReleaseCompleted, 2, nil)
			s.bring("v2")
			s.waitFor(engine.ReasonWaitingForPause, 0, v1(3, 1))
			clock.jump(4 * time.Minute)
			s.stays(clock, "four minutes are no ten", 0, v1(3, 1))
			jump(s, clock)
			clock.jump(10 * time.Minute)
			s.rounds(clock)
			s.waitFor(engine.ReasonReleaseCompleted, 2, map[string]int32{"v2": 4})
		})
	}
}
