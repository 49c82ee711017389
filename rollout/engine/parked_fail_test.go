package engine_test

import (
	"testing"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// A release that has failed by its metrics is not tried again because its Deployment was scaled to zero
// and back. An override of the step lets it go on.
func TestFail_OutlastsScalingToZero(t *testing.T) {
	t.Parallel()
	for _, zero := range []bool{true, false} {
		w := withAnalysis(newWorld(2, 1, 0, "1", "100%"), v1alpha1.Analysis{}, 0)
		w.brought, w.measured.unknowns = 1, 0
		for range 50 { // until it measures
			d := w.decide()
			if len(d.Measure) > 0 {
				w.make(t, d, -1)
				w.measured.answer(d.Measure[0], valueBad)
				break
			}
			w.goWell(t)
		}
		if len(w.measured.answers) != 1 {
			t.Fatalf("nothing is measured: %s", w)
		}
		w.make(t, w.decide(), -1)
		w.settle(t)
		if zero {
			w.scale(0)
			w.settle(t)
			w.scale(2)
		}
		w.settle(t) // each measurement is answered well from here on
		if w.sets[1].size > 1 || w.status.Analysis == nil || w.status.Analysis.Verdict != v1alpha1.VerdictFail {
			t.Errorf("scaled to zero %t: %s\n%+v", zero, w, w.status.Analysis)
		}
		w.measured.override = true
		w.settle(t)
		if w.sets[1].size != 2 || w.status.Phase != v1alpha1.PhaseCompleted {
			t.Errorf("scaled to zero %t, and overridden: %s: %s", zero, w, w.status.Message)
		}
	}
}
