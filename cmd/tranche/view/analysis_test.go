package view_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
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
		{v1alpha1.ReasonAnalysisFailed, view.WaitsForRemedy},
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

// An override is no plain approval: a line has the metrics that did not count, and why.
func TestApprover(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		of   v1alpha1.StepApproval
		want string
	}{
		{v1alpha1.StepApproval{By: "Ada", Commit: "90f3b1d00aa0"}, "Ada in 90f3b1d"},
		{v1alpha1.StepApproval{By: v1alpha1.ApprovedByCluster}, "in the cluster"},
		{v1alpha1.StepApproval{By: "Ada", Commit: "90f3b1d00aa0", Override: []string{"errors", "p99"}, Reason: "the load test"},
			"Ada in 90f3b1d (override of errors, p99: the load test)"},
		{v1alpha1.StepApproval{By: "Ada", Override: []string{"errors"}}, "Ada (override of errors)"},
		{v1alpha1.StepApproval{By: "Ada", Override: []string{"errors"}, Reason: strings.Repeat("ü", 300)},
			"Ada (override of errors: " + strings.Repeat("ü", 99) + "…)"},
	} {
		if got := view.Approver(tt.of); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// A window without an answer has no value. A value that is no number is shown, and not drawn.
func TestAnalysis_Windows(t *testing.T) {
	t.Parallel()
	proportion := v1alpha1.Metric{Name: "m", Prometheus: &v1alpha1.PrometheusMetric{Query: "q", Total: "t"}}
	value := v1alpha1.Metric{Name: "m", Prometheus: &v1alpha1.PrometheusMetric{Query: "q"}}
	check := v1alpha1.Metric{Name: "m", Job: &v1alpha1.JobMetric{From: "smoke"}}
	long := strings.Repeat("9", 400)
	for _, tt := range []struct {
		reason               string
		metric               v1alpha1.Metric
		update, stable       string // of the window
		drawn, drawnStable   string // fmt.Sprint; nil: none
		text, textStable     string
		missing              string
		sums, values, wanted string // of the whole
	}{
		{"a proportion", proportion, "41/1022", "12/9210", "0.040117416829745595", "0.0013029315960912053",
			"4.0 % (41/1022)", "0.1 % (12/9210)", "", "41/1022", "", "4.0 % (41/1022)"},
		{"a small one", proportion, "1/20000", "", "5e-05", "nil", "0.005 % (1/20000)", "", "", "", "", ""},
		{"none in the window", proportion, "", "", "nil", "nil", "", "", "NoData", "1/2", "", "50.0 % (1/2)"},
		{"a total of zero", proportion, "0/0", "", "nil", "nil", "0/0", "", "", "", "", ""},
		{"a huge total", proportion, "1/" + long, "", "nil", "nil", "1/" + long[:37] + "…", "", "", "", "", ""},
		{"a value", value, "0.25", "1e300", "0.25", "1e+300", "0.25", "1e+300", "", "", "0.1 0.3", "0.2 (median of 2)"},
		{"the largest ones", value, "1e300", "-1e300", "1e+300", "-1e+300", "1e+300", "-1e+300", "", "", "1e300 1e300", "1e+300 (median of 2)"},
		{"not a number", value, "NaN", "+Inf", "nil", "nil", "NaN", "+Inf", "", "", "NaN", ""},
		{"HTML", value, "<b>1</b>", "1e301", "nil", "nil", "<b>1</b>", "1e301", "", "", "", ""},
		{"a check", check, "0", "", "0", "nil", "failed", "", "", "", "1 0 1", "2 of 3 passed"},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			br := &v1alpha1.BatchRelease{}
			br.Spec.Strategy.Analysis = &v1alpha1.Analysis{Metrics: []v1alpha1.Metric{tt.metric}}
			br.Status.Analysis = &v1alpha1.AnalysisStatus{Metrics: []v1alpha1.MetricStatus{{
				Name: "m", Update: tt.sums, UpdateValues: strings.Fields(tt.values),
				Measurements: []v1alpha1.MetricMeasurement{{N: 1, Update: tt.update, Stable: tt.stable, Reason: tt.missing}},
			}}}
			got := view.NewRelease(&view.Facts{Release: br, Now: time.Now()})
			if _, err := json.Marshal(got); err != nil { // as it is sent to the page
				t.Error(err)
			}
			drawn := func(f *float64) string {
				if f == nil {
					return "nil"
				}
				return fmt.Sprint(*f)
			}
			m := got.Analysis.Metrics[0]
			w := m.Windows[0]
			have := []string{drawn(w.Update), drawn(w.Stable), w.UpdateText, w.StableText, w.Reason, m.Update}
			want := []string{tt.drawn, tt.drawnStable, tt.text, tt.textStable, tt.missing, tt.wanted}
			if !slices.Equal(have, want) {
				t.Errorf("%q, want %q", have, want)
			}
		})
	}
}

// A plan that has lost the metric or the step, and a status of another version, are shown as
// far as they are known.
func TestAnalysis_WithoutItsPlan(t *testing.T) {
	t.Parallel()
	for reason, edit := range map[string]func(*v1alpha1.BatchRelease){
		"no analysis in the plan": func(br *v1alpha1.BatchRelease) { br.Spec.Strategy.Analysis = nil },
		"no steps":                func(br *v1alpha1.BatchRelease) { br.Spec.Strategy.Steps = nil },
		"a step that is not":      func(br *v1alpha1.BatchRelease) { br.Status.Analysis.Step = -1 },
		"other metrics":           func(br *v1alpha1.BatchRelease) { br.Spec.Strategy.Analysis.Metrics = nil },
	} {
		br := clitest.Release()
		clitest.Measure(br)
		edit(br)
		f := view.Facts{Release: br, Now: clitest.Noon}
		got := f.Analysis()
		if got == nil || len(got.Metrics) != 2 || got.Metrics[0].Kind != view.KindProportion || len(got.Metrics[0].Windows) != 4 {
			t.Errorf("%s: %+v", reason, got)
		}
	}
	br := clitest.Release()
	if got := (&view.Facts{Release: br, Now: clitest.Noon}).Analysis(); got != nil {
		t.Errorf("a controller that measures nothing: %+v", got)
	}
}
