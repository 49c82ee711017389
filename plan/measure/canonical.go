package measure

import (
	"bytes"
	"cmp"
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// CanonicalAnalysis returns an analysis as the terms have it: with its defaults, as canonical
// JSON. It is nil without one.
func CanonicalAnalysis(s *v1alpha1.BatchStrategy) json.RawMessage {
	if s.Analysis == nil {
		return nil
	}
	a := s.Analysis.DeepCopy()
	a.Mode = cmp.Or(a.Mode, v1alpha1.AnalysisAct)
	a.OnFailure = cmp.Or(a.OnFailure, s.OnFailure, v1alpha1.FailureHold)
	a.OnUnknown = cmp.Or(a.OnUnknown, v1alpha1.UnknownHold)
	if a.UnknownDeadlineSeconds == nil {
		seconds := v1alpha1.DefaultUnknownDeadlineSeconds
		a.UnknownDeadlineSeconds = &seconds
	}
	for i := range a.Metrics {
		completeMetric(&a.Metrics[i])
	}
	return CanonicalJSON(a)
}

// completeMetric fills in the defaults of the CRD.
func completeMetric(m *v1alpha1.Metric) {
	m.Scope, m.NoData = cmp.Or(m.Scope, v1alpha1.ScopeRevision), cmp.Or(m.NoData, v1alpha1.NoDataUnknown)
	fill := func(d **metav1.Duration, otherwise time.Duration) {
		if *d == nil {
			*d = &metav1.Duration{Duration: otherwise}
		}
	}
	fill(&m.Interval, DefaultInterval)
	fill(&m.Delay, DefaultDelay)
	if m.Compare != nil {
		m.Compare.Confidence = cmp.Or(m.Compare.Confidence, "95%")
	}
	if m.Prometheus != nil {
		m.Prometheus.Syntax = cmp.Or(m.Prometheus.Syntax, v1alpha1.SyntaxPromQL)
	}
	if m.Web != nil {
		m.Web.Method = cmp.Or(m.Web.Method, "GET")
		fill(&m.Web.Timeout, 30*time.Second)
	}
	if m.Job != nil {
		fill(&m.Job.Timeout, 10*time.Minute)
	}
	if m.Datadog != nil {
		m.Datadog.Site = cmp.Or(m.Datadog.Site, "datadoghq.com")
	}
}

// CanonicalJSON encodes a value with sorted keys and without white space, as `jq -cS` prints it.
func CanonicalJSON(value any) json.RawMessage {
	data, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return nil
	}
	return bytes.TrimSpace(out.Bytes())
}
