package view_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/cmd/tranche/view"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// A gate that measures waits for its metrics, and not for an approval.
func TestSteps_Analysis(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		reason string
		want   view.WaitsFor
	}{
		{v1alpha1.ReasonWaitingForAnalysis, view.WaitsForAnalysis},
		{v1alpha1.ReasonAnalysisFailed, view.WaitsForAnalysis},
		{v1alpha1.ReasonAnalysisUnknown, view.WaitsForAnalysis},
		{v1alpha1.ReasonWaitingForPause, view.WaitsForPause},
		{v1alpha1.ReasonWaitingForApproval, view.WaitsForApproval},
	} {
		br := &v1alpha1.BatchRelease{}
		br.Spec.Strategy.Steps = []v1alpha1.Step{
			{Replicas: intstr.FromInt32(1), Analysis: &v1alpha1.StepAnalysis{Duration: metav1.Duration{Duration: time.Minute}}},
			{Replicas: intstr.FromString("100%")},
		}
		br.Status = v1alpha1.BatchReleaseStatus{
			Phase: v1alpha1.PhaseRollingUpdate, CurrentStepState: v1alpha1.StepBlocking, Reason: tt.reason, Replicas: 4,
			StepStateTime: &metav1.Time{Time: time.Now()},
		}
		facts := view.Facts{Release: br, Now: time.Now()}
		step := facts.Steps()[0]
		if step.Gate != view.GateAnalysis || step.WaitsFor != tt.want {
			t.Errorf("%s: gate %s, waits for %q, want %q", tt.reason, step.Gate, step.WaitsFor, tt.want)
		}
	}
}
