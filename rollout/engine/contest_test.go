package engine_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// Drift of a native Deployment that comes again after each revert is left for a while, and
// the status says so. That of a held one is not.
func TestContestedDrift(t *testing.T) {
	gate := at(0, "Blocking", 2, steps("20%", "100%")...)
	gate.recreate = false
	template, strategy, paused := idle(), idle(), idle()
	template.template = 0
	strategy.surge = 1
	paused.paused = true
	for _, tc := range []struct {
		name string
		w    *world
		left bool
	}{
		{"the template", template, true},
		{"the strategy", strategy, true},
		{"paused", paused, true},
		{"none", idle(), false},
		{"the hold", gate, false},
	} {
		o := tc.w.observe()
		if tc.name != "the hold" {
			o.Release.Spec.DeploymentStrategy = &appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: idle().strategy().RollingUpdate}
		}
		o.Contested, o.ContestedBy = time.Minute, "spec was changed by other"
		d := engine.Decide(o, epoch)
		ready := meta.IsStatusConditionTrue(d.Status.Conditions, v1alpha1.ConditionReady)
		if left := d.Wait == time.Minute && len(d.Actions) == 0 && d.Status.Reason == v1alpha1.ReasonDriftCorrected && !ready; left != tc.left {
			t.Errorf("%s: wait %s, %s: %s; ready=%t, %v", tc.name, d.Wait, d.Status.Reason, d.Status.Message, ready, d.Actions)
		}
		o.Contested = 0
		if d := engine.Decide(o, epoch); tc.left && d.Status.Phase == "Completed" && len(d.Actions) == 0 {
			t.Errorf("%s is not reverted: %s: %s", tc.name, d.Status.Reason, d.Status.Message)
		}
	}
}
