package rollout_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// conditions waits until the conditions Ready and Stalled are these.
func (s *env) conditions(ready, stalled metav1.ConditionStatus) {
	s.Helper()
	clustertest.Wait(s, fmt.Sprintf("Ready=%s, Stalled=%s", ready, stalled), func() error {
		at := s.release().Status
		for name, want := range map[string]metav1.ConditionStatus{v1alpha1.ConditionReady: ready, v1alpha1.ConditionStalled: stalled} {
			if c := meta.FindStatusCondition(at.Conditions, name); c == nil || c.Status != want {
				return fmt.Errorf("%s is %+v", name, c)
			}
		}
		return nil
	})
}

// A completed release whose pods fail afterwards is not Ready, is stuck after its
// deadline, and Ready again once the pods are back. One pod of four may be missing. If its bounds
// let all be missing, one has to be there all the same.
func TestReady_PodsUnavailable(t *testing.T) {
	t.Parallel()
	s, _ := newEnvWithController(t)
	s.install(4)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v1": 4})
	s.conditions(metav1.ConditionTrue, metav1.ConditionFalse)
	s.setReady("v1", false)
	s.waitFor(v1alpha1.ReasonPodsUnavailable, 1, map[string]int32{"v1": 4})
	s.conditions(metav1.ConditionFalse, metav1.ConditionFalse)
	s.deadline(3)
	s.conditions(metav1.ConditionFalse, metav1.ConditionTrue)
	s.hasEvent(v1alpha1.ReasonPodsUnavailable, "0 of 4 pods")
	s.setReady("v1", true)
	s.conditions(metav1.ConditionTrue, metav1.ConditionFalse)
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v1": 4})
	s.untouched()
	bound(s, 0, 4)
	s.setReady("v1", false)
	s.waitFor(v1alpha1.ReasonPodsUnavailable, 1, map[string]int32{"v1": 4})
	s.conditions(metav1.ConditionFalse, metav1.ConditionTrue)
}

// A Deployment is gone and does not come back. No pods are counted, an event says so, and
// the release is stuck after its deadline.
func TestReady_DeploymentGone(t *testing.T) {
	t.Parallel()
	s, _ := newEnvWithController(t)
	s.install(2)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v1": 2})
	s.deadline(3)
	s.kubectl("-n", s.ns, "delete", "deployment", "web")
	s.conditions(metav1.ConditionFalse, metav1.ConditionTrue)
	if at := s.release().Status; at.Reason != v1alpha1.ReasonDeploymentNotFound || at.Replicas != 0 || at.UpdatedAvailableReplicas != 0 {
		t.Errorf("%s, %d pods, %d available: %s", at.Reason, at.Replicas, at.UpdatedAvailableReplicas, at.Message)
	}
	s.hasEvent(v1alpha1.ReasonDeploymentNotFound, "there is no Deployment")
	s.install(2)
	s.conditions(metav1.ConditionTrue, metav1.ConditionFalse)
}
