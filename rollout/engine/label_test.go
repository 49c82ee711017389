package engine_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
)

// The label of a hold counts with any value, as in the admission policies.
func TestHeldByKey(t *testing.T) {
	for _, value := range []string{"true", "", "me"} {
		o := at(0, v1alpha1.StepBlocking, 2, steps("20%", "100%")...).observe()
		o.Deployment.Labels = map[string]string{v1alpha1.LabelHeld: value}
		if !engine.Held(o.Deployment) || !facts.New(&o, epoch).Touched() || engine.Mislabelled(&o) {
			t.Errorf("label %q of a hold: held=%t", value, engine.Held(o.Deployment))
		}
		o.Deployment.Spec.Paused, o.Records = false, nil
		if engine.Held(o.Deployment) || !engine.Mislabelled(&o) {
			t.Errorf("label %q without a hold: held=%t", value, engine.Held(o.Deployment))
		}
	}
}

// The label by hand on a native Deployment whose release is complete is taken off. That is
// no rollback.
func TestLabelByHand(t *testing.T) {
	for _, tc := range []struct {
		why  string
		edit func(*world)
		does string
	}{
		{"native and complete", func(*world) {}, "[take off label tranche.dev/held]"},
		{"another revision comes: its hold is taken", func(w *world) { w.brought = 0 }, "[]"},
	} {
		w := released()
		w.brought, w.held = 2, true
		w.status.UpdateRevision, w.status.UpdateTemplateDigest, w.status.UpdateCommit = hashes[2], digests[2], commitOf(2)
		tc.edit(w)
		d := engine.Decide(w.observe(), epoch)
		if got := fmt.Sprint(d.Actions); got != tc.does {
			t.Errorf("%s: %s, want %s", tc.why, got, tc.does)
		}
		back := slices.ContainsFunc(d.Events, func(e engine.Event) bool {
			return e.Reason == v1alpha1.ReasonRollingBack || e.Reason == v1alpha1.ReasonDriftCorrected
		})
		if tc.does != "[]" && (back || d.Status.RollingBack || d.Status.Phase != v1alpha1.PhaseCompleted) {
			t.Errorf("%s: %v %+v", tc.why, d.Events, d.Status)
		}
	}
}
