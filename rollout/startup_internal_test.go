package rollout

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// The hand-back of a Deployment waits for its source after the start of the leader. It also
// waits after a plan is gone that the branch has again.
func TestStartup(t *testing.T) {
	var uptime time.Duration
	s := &startup{uptime: func() time.Duration { return uptime }, seen: map[types.NamespacedName]bool{}, returns: map[types.NamespacedName]time.Duration{}}
	web, zoo := types.NamespacedName{Namespace: "shop", Name: "web"}, types.NamespacedName{Namespace: "shop", Name: "zoo"}
	for _, step := range []struct {
		why  string
		at   time.Duration
		do   func(types.NamespacedName)
		want time.Duration // of web; -1: not asked, since a plan is there
	}{
		{"the leader has begun", 0, nil, 30 * time.Second},
		{"it has a plan", 5 * time.Second, s.saw, 0},
		{"the start was long ago", time.Hour, nil, 0},
		{"the plan is to return", time.Hour, s.awaitReturn, -1},
		{"its finalizer has gone an hour later", 2 * time.Hour, nil, 30 * time.Second},
		{"that was a while ago", 2*time.Hour + 20*time.Second, nil, 10 * time.Second},
		{"it is created", 2*time.Hour + 25*time.Second, s.saw, 0},
		{"another one is to return", 3 * time.Hour, s.awaitReturn, -1},
		{"it leaves the branch once more", 3 * time.Hour, s.endReturn, 0},
		{"another one is to return", 4 * time.Hour, s.awaitReturn, -1},
		{"it is gone", 4 * time.Hour, nil, 30 * time.Second},
		{"it is not created in time", 4*time.Hour + 30*time.Second, nil, 0},
	} {
		uptime = step.at
		if step.do != nil {
			step.do(web)
		}
		if step.want < 0 {
			continue
		}
		if got := s.wait(web); got != step.want {
			t.Errorf("%s: %s, want %s", step.why, got, step.want)
		}
	}
	if got := s.wait(zoo); got != 0 {
		t.Errorf("another Deployment waits for %s", got)
	}
}

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
