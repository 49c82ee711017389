package verdict

import (
	"github.com/tranche-dev/tranche/plan/measure"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// newQuestion returns what to ask with these values.
func newQuestion(m *v1alpha1.Metric, values map[string]string) *Question {
	m = m.DeepCopy()
	q := &Question{Prometheus: m.Prometheus, Web: m.Web, Job: m.Job, Datadog: m.Datadog}
	var texts []*string
	switch {
	case q.Prometheus != nil:
		texts = []*string{&q.Prometheus.Query, &q.Prometheus.Total}
	case q.Datadog != nil:
		texts = []*string{&q.Datadog.Query, &q.Datadog.Total}
	case q.Web != nil:
		texts = []*string{&q.Web.URL}
		q.Web.Body = measure.ExpandBody(q.Web.Body, values)
	}
	for _, t := range texts {
		*t = measure.Expand(*t, values)
	}
	return q
}
