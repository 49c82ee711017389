package verdict_test

import (
	"testing"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/verdict"
)

// Values that the statistics refuse were not compared, so they do not pass.
func TestJudge_RefusedValues(t *testing.T) {
	compare := &v1alpha1.Comparison{Worse: v1alpha1.WorseHigher, By: "1%"}
	proportion := &v1alpha1.Metric{
		Name: "bytes", Prometheus: &v1alpha1.PrometheusMetric{Query: "a", Total: "b"}, Compare: compare,
	}
	values := &v1alpha1.Metric{Name: "p99", Prometheus: &v1alpha1.PrometheusMetric{Query: "a"}, Minimum: 4, Compare: compare}
	same := func(v string) []string { return []string{v, v, v, v} }
	for name, c := range map[string]verdict.Case{
		"a total above 1e12":    {Metric: proportion, Status: &v1alpha1.MetricStatus{Update: "1900000000000/2000000000000", Stable: "1/100"}},
		"a value above 1e300":   {Metric: values, Status: &v1alpha1.MetricStatus{UpdateValues: same("1e301"), StableValues: same("1")}},
		"also of the other one": {Metric: values, Status: &v1alpha1.MetricStatus{UpdateValues: same("1"), StableValues: same("1e301")}},
	} {
		for _, background := range []bool{false, true} {
			c.Planned, c.Status.Count, c.Status.Background = 1, 1, background
			if j := verdict.Judge(c); j.Verdict != v1alpha1.VerdictUnknown || j.Reason != verdict.BadAnswer {
				t.Errorf("%s, background %t: %+v", name, background, j)
			}
		}
	}
}
