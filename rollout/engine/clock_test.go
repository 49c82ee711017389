package engine_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// stored is a status as the API server keeps it: times in whole seconds.
func stored(s v1alpha1.BatchReleaseStatus) v1alpha1.BatchReleaseStatus {
	s = *s.DeepCopy()
	for _, t := range []*metav1.Time{s.LastUpdateTime, s.ProgressTime, s.StepStateTime, s.ReasonTime, s.StartTime} {
		if t != nil {
			*t = metav1.NewTime(t.Truncate(time.Second))
		}
	}
	return s
}

// stuckAt are releases that wait for the cluster with a clock, for ten minutes.
var stuckAt = map[string]func() *world{
	"pods": func() *world {
		w := at(0, v1alpha1.StepUpgrade, 2, steps("20%", "100%")...)
		w.sets[1].ready, w.sets[1].statusReady, w.status.BestAvailableReplicas = 0, 0, 0
		return w
	},
	"the hold": func() *world {
		w := at(0, v1alpha1.StepInitial, 2, steps("20%", "100%")...)
		w.observed = 0 // the native controller has not seen it
		w.status.Phase = v1alpha1.PhaseInitial
		return w
	},
}

// A clock of ten minutes ends after ten minutes in which a controller could run. It does
// so however often the controller was started, and whatever causes its rounds. A quarter
// of the deadline may count of each time away.
func TestClock(t *testing.T) {
	const deadline, quarter = 10 * time.Minute, 150 * time.Second
	for name, stuck := range stuckAt {
		for seed := range uint64(300) {
			r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a seed that can be repeated
			w, now := stuck(), epoch
			longest := time.Duration(1+r.IntN(400)) * time.Second // between two looks of a controller that is there
			outages := r.IntN(4)
			var away, written time.Duration
			look := func() (d engine.Decision, stalled bool) {
				d = engine.Decide(w.observe(), now)
				if last := w.status.LastUpdateTime; last != nil && (d.Status.LastUpdateTime == nil || !d.Status.LastUpdateTime.Equal(last)) {
					written++
				}
				w.status = stored(d.Status)
				return d, meta.IsStatusConditionTrue(d.Status.Conditions, v1alpha1.ConditionStalled)
			}
			d, stalled := look()
			for !stalled && now.Sub(epoch) < 24*time.Hour {
				next := d.Wait
				if next <= 0 {
					t.Fatalf("%s, seed %d: after %s it asks for no look: %s", name, seed, now.Sub(epoch), d.Status.Message)
				}
				next = min(next, time.Duration(1+r.Int64N(int64(longest))))
				if outages > 0 && r.IntN(4) == 0 {
					outage := time.Duration(r.Int64N(int64(3 * time.Hour)))
					outages--
					away += max(0, outage-quarter)
					next += outage
				}
				now = now.Add(next)
				d, stalled = look()
			}
			ran := now.Sub(epoch) - away
			slack := 5 * time.Second // whole seconds, several times
			if ran < deadline-slack || ran > deadline+quarter+time.Duration(4)*quarter+slack {
				t.Errorf("%s, seed %d: stalled after %s, %s of them away: %s", name, seed, now.Sub(epoch), away, d.Status.Message)
			}
			if most := time.Duration(ran/quarter) + 8; written > most {
				t.Errorf("%s, seed %d: %d statuses written in %s", name, seed, written, ran)
			}
		}
	}
}

// A controller that is started again each minute fails a release when one that runs
// all the time does.
func TestClock_RestartedAgainAndAgain(t *testing.T) {
	for name, stuck := range stuckAt {
		for _, every := range []time.Duration{time.Second, 10 * time.Second, time.Minute, 2 * time.Minute} {
			w, now := stuck(), epoch
			for i := 0; ; i++ {
				d := engine.Decide(w.observe(), now)
				w.status = stored(d.Status)
				if meta.IsStatusConditionTrue(d.Status.Conditions, v1alpha1.ConditionStalled) {
					break
				}
				if now = now.Add(every); now.Sub(epoch) > 11*time.Minute {
					t.Errorf("%s: a controller started every %s has not stalled after %s", name, every, now.Sub(epoch))
					break
				}
			}
		}
	}
}

// No clock causes a write for a release at a gate, for one that is paused, or for a
// Deployment without a release under way.
func TestClock_NothingRuns(t *testing.T) {
	for name, w := range map[string]*world{
		"gate":   at(0, v1alpha1.StepBlocking, 2, steps("20%", "100%")...),
		"paused": at(0, v1alpha1.StepUpgrade, 2, steps("20%", "100%")...),
		"rest":   newWorld(10, 3, 2),
	} {
		w.spec.Paused = name == "paused"
		for range 3 {
			w.status = stored(engine.Decide(w.observe(), epoch).Status)
		}
		d := engine.Decide(w.observe(), epoch.Add(100*time.Hour))
		if d.Wait != 0 || !d.Status.LastUpdateTime.Equal(w.status.LastUpdateTime) {
			t.Errorf("%s: wait %s, written %s, %s", name, d.Wait, fmt.Sprint(d.Status.LastUpdateTime), d.Status.Reason)
		}
	}
}
