package engine_test

import (
	"fmt"
	"strings"
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

// A gate that an override opens, the last one also, has one event, which does not say that the metric passes.
func TestOverride_Events(t *testing.T) {
	t.Parallel()
	for step := range 2 {
		for answer, want := range map[string]string{
			valueGood: "AnalysisPassed step %d of %s: errors 1 (median of 2) against 1 (2) of stable; max 5",
			valueBad: "AnalysisOverridden step %d of %s: errors did not count, by spec.approval: known; " +
				"errors 9 (median of 1) against 1 (1) of stable; max 5 (overridden)",
		} {
			w := withAnalysis(newWorld(2, 1, 0, "1", "100%"), v1alpha1.Analysis{}, step)
			w.brought, w.measured.unknowns, w.approved = 1, 0, int32(step)-1
			var events []string
			for range 100 {
				w.measured.override = answer == valueBad && int(w.status.CurrentStepIndex) == step
				d := w.decide()
				for _, e := range d.Events {
					if strings.HasPrefix(e.Reason, "Analysis") {
						events = append(events, e.Reason+" "+e.Message)
					}
				}
				w.goWell(t)
				if w.measured.answers = nil; len(d.Measure) > 0 {
					w.measured.answer(d.Measure[0], answer)
				}
			}
			want = fmt.Sprintf(want, step, hashes[1])
			if got := strings.Join(events, "\n"); got != want || w.status.Phase != v1alpha1.PhaseCompleted {
				t.Errorf("%s: %s\nwant %s", w, got, want)
			}
		}
	}
}
