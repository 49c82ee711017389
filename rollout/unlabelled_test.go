package rollout_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// unlabel makes the hold one without its label, as it is after the label was taken off
// where no policy refuses that. Another Deployment takes over the ReplicaSets.
func (s *env) unlabel() {
	s.Helper()
	d := s.deployment("web")
	if !engine.Held(d) {
		s.Fatalf("it is not held: %v, paused %t, %s", d.Labels, d.Spec.Paused, d.Spec.Strategy.Type)
	}
	s.orphan()
	again := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: d.Name, Namespace: d.Namespace}, Spec: d.Spec}
	s.must(s.c.Client.Create(s.Context(), again))
	clustertest.Wait(s, "the ReplicaSets to be adopted", func() error {
		d := s.deployment("web")
		for _, rs := range s.sets() {
			if !metav1.IsControlledBy(&rs, d) {
				return fmt.Errorf("%s is not", rs.Name)
			}
		}
		if d.Status.ObservedGeneration != d.Generation {
			return fmt.Errorf("generation %d of %d", d.Status.ObservedGeneration, d.Generation)
		}
		return nil
	})
}

// native waits until the Deployment is native, with the strategy of its manifest.
func (s *env) native(strategy appsv1.DeploymentStrategy) {
	s.Helper()
	clustertest.Wait(s, "the hand-back", func() error {
		if d := s.deployment("web"); d.Spec.Paused || !cmp.Equal(strategy, d.Spec.Strategy) {
			return fmt.Errorf("paused %t, strategy %v", d.Spec.Paused, d.Spec.Strategy)
		}
		return nil
	})
	s.untouched()
}

// A hold that has lost its label, in a namespace where drift is corrected, is still one.
// The release goes on at its gate, and what is left of a hold is handed back. So it is
// between releases, and if the plan is deleted while no controller runs.
func TestHoldWithoutItsLabel(t *testing.T) {
	t.Parallel()
	c := clustertest.Shared(t)
	s := &env{T: t, c: c, ns: c.Namespace(t)} // with no watcher: a user replaces the Deployment
	stop := startControllerIn(t, c, s.ns)
	strategy := appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType}
	strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt32(2)), MaxUnavailable: ptr.To(intstr.FromInt32(0))}
	s.toGate(4, func(d *appsv1.Deployment) { d.Spec.Strategy = strategy })
	stop()
	s.unlabel()

	stop = startControllerIn(t, c, s.ns)
	clustertest.Wait(t, "the hold to be whole", func() error {
		if d := s.deployment("web"); !engine.Held(d) {
			return fmt.Errorf("labels %v, paused %t, strategy %v", d.Labels, d.Spec.Paused, d.Spec.Strategy.Type)
		}
		return nil
	})
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
	s.approve(0)
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v2": 4})
	s.native(strategy)

	const hold = `{"spec":{"paused":true,"strategy":{"type":"Recreate","rollingUpdate":null}}}`
	stop()
	s.kubectl("-n", s.ns, "patch", "deployment/web", "--type=merge", "-p", hold)
	stop = startControllerIn(t, c, s.ns)
	s.native(strategy)
	s.become(map[string]int32{"v2": 4})

	stop()
	s.kubectl("-n", s.ns, "patch", "deployment/web", "--type=merge", "-p", hold)
	s.unplan()
	startControllerIn(t, c, s.ns)
	s.native(strategy)
	s.become(map[string]int32{"v2": 4})
	clustertest.Wait(t, "the records to go", func() error {
		if records := s.records(); len(records) > 0 {
			return fmt.Errorf("%d are left", len(records))
		}
		return nil
	})
}
