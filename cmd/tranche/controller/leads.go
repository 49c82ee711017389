package controller

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
)

// The metrics of the election; docs/metrics.md explains them. Every process has them,
// also one that only waits for the lease: an alert on their absence means that no
// controller is scraped.
var (
	leaderDesc = prometheus.NewDesc("tranche_leader", "1 while this process works: it has the lease, or no other may run; 0 while it waits.",
		[]string{"lease"}, nil)
	heldDesc = prometheus.NewDesc("tranche_lease_held", "1 while a process renews the lease, as this one sees it.", []string{"lease"}, nil)
	infoDesc = prometheus.NewDesc("tranche_controller_info", "1, with the version of this process.", []string{"version"}, nil)

	elections = &electionMetrics{of: map[string][]*lease{}}
)

func init() { metrics.Registry.MustRegister(elections) }

// electionMetrics are those of all managers of this process: one, but in tests.
type electionMetrics struct {
	mu sync.Mutex
	of map[string][]*lease // by the name of the lease; nil: of a controller that is the only one
}

func (e *electionMetrics) add(name string, l *lease) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.of[name] = append(e.of[name], l)
}

// Describe sends the descriptions of the metrics.
func (e *electionMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{leaderDesc, heldDesc, infoDesc} {
		ch <- d
	}
}

// Collect sends one series for each lease.
func (e *electionMetrics) Collect(ch chan<- prometheus.Metric) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(infoDesc, prometheus.GaugeValue, 1, cli.VersionString())
	for name, leases := range e.of {
		var leads, held float64
		for _, l := range leases {
			a, b := l.seen()
			leads, held = max(leads, gaugeOf(a)), max(held, gaugeOf(b))
		}
		ch <- prometheus.MustNewConstMetric(leaderDesc, prometheus.GaugeValue, leads, name)
		ch <- prometheus.MustNewConstMetric(heldDesc, prometheus.GaugeValue, held, name)
	}
}

func gaugeOf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
