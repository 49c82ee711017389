package analysis

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	registry "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tranche-dev/tranche/rollout/analysis/unknown"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/engine/verdict"
)

// docs/metrics.md explains these. They have no label of a release: a cluster may have thousands.
var (
	measurements = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "tranche", Subsystem: "analysis", Name: "measurements_total",
		Help: "Measurements that providers were asked for, by the reason for which there is no value.",
	}, []string{"type", "provider", "reason"})

	durations = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "tranche", Subsystem: "analysis", Name: "measurement_duration_seconds",
		Help:    "How long providers took to answer.",
		Buckets: []float64{0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30},
	}, []string{"type", "provider"})
)

func init() { registry.Registry.MustRegister(measurements, durations) }

// labels returns the type of a provider, and its name in the configuration. The name is empty
// if the configuration does not have it: plans would else make series without end.
func (c *Configuration) labels(q *verdict.Question) (kind, provider string) {
	switch {
	case q == nil:
		return "", ""
	case q.Prometheus != nil:
		kind, provider = TypePrometheus, q.Prometheus.Provider
	case q.Datadog != nil:
		kind, provider = TypeDatadog, q.Datadog.Provider
	case q.Web != nil:
		kind = "web"
	default:
		kind = "job"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.providers[provider]; !ok {
		provider = ""
	}
	return kind, provider
}

// observe counts and logs a measurement.
func (p *Providers) observe(ctx context.Context, m engine.Measurement, got *engine.Measured, err error, took time.Duration) {
	if ctx.Err() != nil || err != nil && unknown.Of(err).Pending {
		return // it was cancelled, or runs
	}
	kind, provider := p.o.Configuration.labels(m.Update)
	reason := ""
	for _, a := range []*verdict.Answer{got.Stable, got.Update} {
		if a != nil && a.Unknown != "" {
			reason = a.Unknown
		}
	}
	measurements.WithLabelValues(kind, provider, reason).Inc()
	durations.WithLabelValues(kind, provider).Observe(took.Seconds())
	log := p.o.Log.V(1).WithValues("namespace", m.Namespace, "release", m.Plan, "revision", m.Revision,
		"step", m.Step, "metric", m.Metric, "n", m.N, "type", kind, "provider", provider, "took", took.String())
	if reason != "" {
		log.Info("Measured no value", "reason", reason, "retrying", got.Retrying)
		return
	}
	log.Info("Measured", "to", m.To)
}
