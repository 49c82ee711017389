package engine_test

import (
	"fmt"
	"testing"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// A label by hand is no hold: Abandon changes nothing else than the label. It leaves that
// too where an admission policy would refuse the write.
func TestAbandon(t *testing.T) {
	handedBack := "[hand back forget " + hashes[0] + " forget " + hashes[1] + "]"
	for _, tc := range []struct {
		why     string
		edit    func(*world)
		actions string
	}{
		{"a hold", func(*world) {}, handedBack},
		{"a hold whose label was taken off", func(w *world) { w.held = false }, handedBack},
		{"a hold whose strategy was changed", func(w *world) { w.recreate = false }, handedBack},
		{"a hold that was unpaused", func(w *world) { w.paused = false }, handedBack},
		{"a hold that has lost its records", func(w *world) { w.records, w.releasing = nil, nil }, "[hand back]"},
		{"a paused Deployment with the label", func(w *world) { w.records, w.releasing, w.recreate = nil, nil, false }, "[]"},
		{"a Deployment of strategy Recreate with the label", func(w *world) { w.records, w.releasing, w.paused = nil, nil, false }, "[]"},
		{"a native Deployment with the label", func(w *world) { w.records, w.releasing, w.paused, w.recreate = nil, nil, false, false },
			"[take off label tranche.dev/held]"},
		{"a paused Deployment of strategy Recreate", func(w *world) { w.records, w.releasing, w.held = nil, nil, false }, "[]"},
	} {
		w := at(0, v1alpha1.StepBlocking, 2, steps("20%", "100%")...)
		tc.edit(w)
		if got := fmt.Sprint(engine.Abandon(w.observe())); got != tc.actions {
			t.Errorf("%s: %s, want %s", tc.why, got, tc.actions)
		}
	}
}
