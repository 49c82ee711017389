package engine_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/simulation"
)

// A simulation ends as a release does, and keeps to its bounds on the way.
func TestSimulate(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		w := randomWorld(r)
		s := simulation.Simulation{
			Plan: w.spec.Strategy, Replicas: w.n, Strategy: w.strategy(), MinReadySeconds: r.Int32N(20),
			PodReady: time.Duration(r.IntN(90)) * time.Second, ApproveAfter: time.Duration(r.IntN(900)) * time.Second,
			Fails: r.IntN(3) == 0, FailAt: r.Int32N(int32(len(w.spec.Strategy.Steps))),
		}
		if s.Plan.OnFailure = v1alpha1.FailureHold; r.IntN(2) == 0 {
			s.Plan.OnFailure = v1alpha1.FailureRollback
		}
		least, most, err := s.Bounds()
		if err != nil {
			t.Fatal(err)
		}
		moments, err := s.Run()
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, m := range moments {
			if m.UpdatedAvailable+m.StableAvailable < least || m.Updated+m.Stable > most {
				t.Fatalf("seed %d: %+v: not between %d available and %d pods", seed, m, least, most)
			}
			if !m.Back && m.Updated > m.Target && m.Reason != v1alpha1.ReasonRolledBack {
				t.Fatalf("seed %d: %+v: above the target", seed, m)
			}
		}
		last := moments[len(moments)-1]
		ends := map[string]bool{v1alpha1.ReasonReleaseCompleted: true}
		if s.Fails {
			ends = map[string]bool{v1alpha1.ReasonProgressDeadlineExceeded: true, v1alpha1.ReasonRolledBack: true}
			if s.Plan.OnFailure == v1alpha1.FailureRollback {
				delete(ends, v1alpha1.ReasonProgressDeadlineExceeded)
			}
			if last.Updated == s.Replicas || last.Target == 0 { // no pod had to be made at or after that step
				ends[v1alpha1.ReasonReleaseCompleted] = true
			}
		}
		if !ends[last.Reason] {
			t.Fatalf("seed %d: ends with %+v", seed, last)
		}
	}
}

// A plan that cannot be simulated is an error.
func TestSimulateErrors(t *testing.T) {
	s := simulation.Simulation{Plan: v1alpha1.BatchStrategy{Steps: steps("100%")}, Replicas: 1, Strategy: simulation.NewStrategy("lots", "")}
	if _, err := s.Run(); err == nil {
		t.Error("maxSurge lots: no error")
	}
	if got := simulation.NewStrategy("", "1").RollingUpdate; *got.MaxSurge != intstr.FromString("25%") || *got.MaxUnavailable != intstr.FromInt32(1) {
		t.Errorf("defaults: %+v", got)
	}
}
