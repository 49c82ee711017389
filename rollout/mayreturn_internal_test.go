package rollout

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// The hand-back of a Deployment at the start waits where a GitSource applies it, and where it
// was restored with its hold.
func TestMayReturn(t *testing.T) {
	for _, tc := range []struct {
		managers []string
		held     bool
		want     bool
	}{
		{[]string{v1alpha1.ManagerGitSync, v1alpha1.ManagerRollout}, true, true},
		{[]string{"kubectl-create"}, true, true},
		{[]string{"kubectl-create"}, false, false},
		{[]string{"kubectl-client-side-apply", v1alpha1.ManagerRollout}, true, false},
	} {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelHeld: "true"}}}
		d.Spec.Paused = tc.held
		d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
		for _, manager := range tc.managers {
			d.ManagedFields = append(d.ManagedFields, metav1.ManagedFieldsEntry{Manager: manager})
		}
		if got := mayReturn(d); got != tc.want {
			t.Errorf("by %v, held %t: %t", tc.managers, tc.held, got)
		}
	}
}
