package refusal_test

import (
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
	"github.com/tranche-dev/tranche/cmd/tranche/commit/refusal"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// A plain approval does not open a gate that metrics open. One that covers another gate, too, is
// possible, and so is one of a gate before the step.
func TestStep_OfMetrics(t *testing.T) {
	for _, tt := range []struct {
		reason string
		step   refusal.Step
		edit   func(*v1alpha1.BatchRelease)
		want   string // empty: it is possible
	}{
		{"metrics alone", refusal.Step{}, nil, "its metrics open this gate"},
		{"the same in the cluster", refusal.Step{Direct: true}, nil, "its metrics open this gate"},
		{"a later gate needs one", refusal.Step{Index: 2, Given: true}, nil, ""},
		{"all gates", refusal.Step{All: true}, nil, ""},
		{"metrics and an approval", refusal.Step{}, func(br *v1alpha1.BatchRelease) {
			br.Spec.Strategy.Steps[1].Analysis.Approval = true
		}, ""},
		{"metrics without consequences", refusal.Step{}, func(br *v1alpha1.BatchRelease) {
			br.Spec.Strategy.Analysis.Mode = v1alpha1.AnalysisObserve
		}, ""},
		{"a gate before a step that was raised", refusal.Step{}, func(br *v1alpha1.BatchRelease) {
			br.Status.Reason = v1alpha1.ReasonWaitingForApproval
		}, ""},
		{"all pods run, and a policy refuses the hand-back", refusal.Step{}, func(br *v1alpha1.BatchRelease) {
			br.Status.Phase, br.Status.Message = v1alpha1.PhaseFinalizing, "no resume in the freeze"
		}, "all gates of shop/web are open: no resume in the freeze"},
	} {
		br := clitest.Release()
		clitest.Measure(br)
		br.Status.Reason = v1alpha1.ReasonWaitingForAnalysis
		if tt.edit != nil {
			tt.edit(br)
		}
		_, err := tt.step.Of(br)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.reason, err, tt.want)
		}
	}
}
