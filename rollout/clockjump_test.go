package rollout_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// jumpingClock is the clock of a machine, which a test sets. Its uptime no one can set.
type jumpingClock struct {
	mu     sync.Mutex
	ahead  time.Duration // by jumps
	passed time.Duration // beside the time that passes
	still  time.Time     // time stands still there; zero: it passes
	read   int
}

var testsBegan = time.Now()

func (c *jumpingClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read++
	if !c.still.IsZero() {
		return c.still.Add(c.passed + c.ahead)
	}
	return time.Now().Add(c.passed + c.ahead)
}

func (c *jumpingClock) uptime() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.still.IsZero() {
		return c.passed
	}
	return time.Since(testsBegan) + c.passed
}

func (c *jumpingClock) options() rollout.Options {
	return rollout.Options{Concurrent: 50, Now: c.now, Uptime: c.uptime}
}

// jump sets the clock.
func (c *jumpingClock) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

// pass lets time pass.
func (c *jumpingClock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.passed += d
}

func (c *jumpingClock) reads() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read
}

// rounds waits until the release has been reconciled with the clock as it is. The second
// of two rounds begins when the first one has ended.
func (s *env) rounds(c *jumpingClock) {
	s.Helper()
	for i := range 3 {
		before := c.reads()
		label := fmt.Appendf(nil, `{"metadata":{"labels":{"round":"%d-%d"}}}`, i, before)
		s.must(s.c.Client.Patch(s.Context(), s.release(), client.RawPatch(types.MergePatchType, label)))
		clustertest.Wait(s, "a round", func() error {
			if c.reads() == before {
				return fmt.Errorf("the clock was read %d times", before)
			}
			return nil
		})
	}
}

// stays fails the test where a round changes the sizes, or what the release waits for.
func (s *env) stays(c *jumpingClock, why string, step int32, sizes map[string]int32) {
	s.Helper()
	s.rounds(c)
	if at, got := s.release().Status, s.sizes(); fmt.Sprint(got) != fmt.Sprint(sizes) || at.Reason != v1alpha1.ReasonWaitingForPause || at.CurrentStepIndex != step {
		s.Errorf("%s: %s at step %d, sizes %v, want %v", why, at.Reason, at.CurrentStepIndex, got, sizes)
	}
}

// The clock of a running controller jumps by an hour, four minutes into a pause of ten:
// it lasts ten minutes all the same.
// The watcher of the invariants is not asked: for it no minute passes.
func TestClockJumps_Controller(t *testing.T) {
	t.Parallel()
	v1 := func(old, update int32) map[string]int32 { return map[string]int32{"v1": old, "v2": update} }
	for name, jump := range map[string]func(s *env, c *jumpingClock, restart func()){
		"back": func(_ *env, c *jumpingClock, _ func()) { c.jump(-time.Hour) },
		"back, and put right": func(s *env, c *jumpingClock, _ func()) {
			c.jump(-time.Hour)
			s.stays(c, "the pause does not begin again, and does not end", 0, v1(3, 1))
			c.jump(time.Hour)
		},
		"ahead": func(_ *env, c *jumpingClock, _ func()) { c.jump(time.Hour) },
		"ahead, and a restart": func(s *env, c *jumpingClock, restart func()) {
			c.jump(time.Hour)
			clustertest.Wait(s, "the status to follow the clock by itself", func() error {
				if at := s.release().Status.StepStateTime; at.Before(&metav1.Time{Time: time.Now().Add(30 * time.Minute)}) {
					return fmt.Errorf("the step is since %s", at)
				}
				return nil
			})
			restart()
		},
		"back, and a restart": func(s *env, c *jumpingClock, restart func()) {
			c.jump(-time.Hour)
			s.stays(c, "the pause does not end", 0, v1(3, 1))
			restart()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := clustertest.Shared(t)
			s := &env{T: t, c: c, ns: c.Namespace(t)}
			clock := &jumpingClock{still: time.Now()}
			stop := startReconciler(t, s.c, s.ns, clock.options(), func(*ctrl.Options) {})
			s.pauses("v2", 10*time.Minute)
			s.waitFor(v1alpha1.ReasonWaitingForPause, 0, v1(3, 1))
			clock.pass(4 * time.Minute)
			s.stays(clock, "four minutes are no ten", 0, v1(3, 1))
			jump(s, clock, func() {
				stop()
				startReconciler(t, s.c, s.ns, clock.options(), func(*ctrl.Options) {})
			})
			s.stays(clock, "four minutes are no ten, whatever the clock shows", 0, v1(3, 1))
			clock.pass(5 * time.Minute)
			s.stays(clock, "nine minutes are no ten, whatever the clock shows", 0, v1(3, 1))
			clock.pass(time.Minute)
			s.rounds(clock)
			s.waitFor(v1alpha1.ReasonWaitingForPause, 1, v1(2, 2))
			s.stays(clock, "the next pause is whole", 1, v1(2, 2))
			clock.pass(9 * time.Minute)
			s.stays(clock, "nine minutes of the next pause", 1, v1(2, 2))
			clock.pass(time.Minute)
			s.rounds(clock)
			s.waitFor(v1alpha1.ReasonReleaseCompleted, 2, map[string]int32{"v2": 4})
		})
	}
}

// pauses installs v1 on four pods, and brings a tag in three steps. Two have a pause.
func (s *env) pauses(tag string, lasts time.Duration) {
	s.Helper()
	s.install(4)
	s.plan("1", "2", "100%")
	s.edit(func(spec *v1alpha1.BatchReleaseSpec) {
		for i := range 2 {
			spec.Strategy.Steps[i].Pause = &v1alpha1.Pause{Duration: metav1.Duration{Duration: lasts}}
		}
		spec.Strategy.OnFailure = v1alpha1.FailureRollback
	})
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 2, nil)
	s.bring(tag)
}

// The clock jumps by an hour, to and fro, while pauses run that really last. The API
// server says when pods were made, and its clock does not jump. The watcher counts the
// pauses, too.
func TestClockJumps_RealTime(t *testing.T) {
	t.Parallel()
	const lasts = 25 * time.Second
	for name, jump := range map[string]time.Duration{"ahead": time.Hour, "back": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			clock := &jumpingClock{}
			startReconciler(t, s.c, s.ns, clock.options(), func(*ctrl.Options) {})
			s.pauses("v2", lasts)
			for step, sizes := range []map[string]int32{{"v1": 3, "v2": 1}, {"v1": 2, "v2": 2}} {
				s.waitFor(v1alpha1.ReasonWaitingForPause, int32(step), sizes)
				clock.jump(jump)
				s.rounds(clock)
				jump = -jump
			}
			s.waitFor(v1alpha1.ReasonReleaseCompleted, 2, map[string]int32{"v2": 4})
			var made []time.Time
			for _, pod := range s.pods("v2") {
				made = append(made, pod.CreationTimestamp.Time)
			}
			slices.SortFunc(made, time.Time.Compare)
			for i, pause := range []string{"first", "second"} {
				if took := made[i+1].Sub(made[i]); took < lasts-time.Second { // whole seconds
					t.Errorf("the %s pause lasted %s, want %s", pause, took, lasts)
				}
			}
		})
	}
}
