// Package metrics has the metrics of GitSources; docs/metrics.md explains them.
package metrics

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// The metrics of a GitSource; docs/metrics.md explains them.
var (
	metricLabels = []string{"namespace", "source"}

	conditionGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "tranche", Subsystem: "source", Name: "condition",
		Help: "1 for the status that a condition of the source has, 0 for the others."}, append(metricLabels[:2:2], "condition", "status"))
	behindGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "tranche", Subsystem: "source", Name: "commits_behind",
		Help: "Commits of the branch that are not applied, up to 1000."}, metricLabels)
	syncCounter = prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "tranche", Subsystem: "source", Name: "syncs_total",
		Help: "Syncs of the branch, by result: Applied, or the reason why not."}, append(metricLabels[:2:2], "result"))
	renderCounter = prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "tranche", Subsystem: "source", Name: "renders_total",
		Help: "Looks at what the branch renders: rendered, or skipped since nothing that was read has changed."},
		append(metricLabels[:2:2], "result"))
	exchangeHistogram = prometheus.NewHistogramVec(
		prometheus.HistogramOpts{Namespace: "tranche", Subsystem: "git", Name: "exchange_duration_seconds",
			Help: "Exchanges with Git servers: fetch or push.", Buckets: []float64{.01, .05, .1, .5, 1, 5, 15, 60}},
		append(metricLabels[:2:2], "operation"))
	ageGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "tranche", Subsystem: "source", Name: "sync_age_seconds",
		Help: "Time since the last sync of the source, of the process that leads, or of all where none does."}, metricLabels)
	staleGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "tranche", Subsystem: "source", Name: "stale",
		Help: "1 while the source was not synced for three intervals."}, metricLabels)
	exchangeErrorCounter = prometheus.NewCounterVec(
		prometheus.CounterOpts{Namespace: "tranche", Subsystem: "git", Name: "exchange_errors_total",
			Help: "Exchanges with Git servers that failed."}, append(metricLabels[:2:2], "operation", "reason"))
)

// vectors have series by source.
var vectors = []interface {
	prometheus.Collector
	DeletePartialMatch(prometheus.Labels) int
}{conditionGauge, behindGauge, syncCounter, renderCounter, exchangeHistogram, exchangeErrorCounter, ageGauge, staleGauge}

func init() {
	for _, v := range vectors {
		metrics.Registry.MustRegister(v)
	}
}

// Forget forgets a source that is gone.
func Forget(source types.NamespacedName) {
	for _, v := range vectors {
		v.DeletePartialMatch(prometheus.Labels{"namespace": source.Namespace, "source": source.Name})
	}
}

// Age takes how old the last sync of a source is.
func Age(source types.NamespacedName, age time.Duration, stale bool) {
	value := 0.0
	if stale {
		value = 1
	}
	ageGauge.WithLabelValues(source.Namespace, source.Name).Set(age.Seconds())
	staleGauge.WithLabelValues(source.Namespace, source.Name).Set(value)
}

// ForgetAges leaves that to the process that leads.
func ForgetAges() {
	ageGauge.Reset()
	staleGauge.Reset()
}

// ForgetAge forgets that of one source.
func ForgetAge(source types.NamespacedName) {
	ageGauge.DeleteLabelValues(source.Namespace, source.Name)
	staleGauge.DeleteLabelValues(source.Namespace, source.Name)
}

// Synced takes the conditions after a sync, and how many commits are not applied.
func Synced(source types.NamespacedName, conditions []metav1.Condition, behind int) {
	ns, name := source.Namespace, source.Name
	for _, c := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled, v1alpha1.ConditionInSync} {
		for _, s := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown} {
			value := 0.0
			if meta.IsStatusConditionPresentAndEqual(conditions, c, s) {
				value = 1
			}
			conditionGauge.WithLabelValues(ns, name, c, string(s)).Set(value)
		}
	}
	behindGauge.WithLabelValues(ns, name).Set(float64(behind))
	if ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); ready != nil {
		syncCounter.WithLabelValues(ns, name, ready.Reason).Inc()
	}
}

// Exchanged takes the time of an exchange with the server.
func Exchanged(source types.NamespacedName, operation string, begun time.Time, err error) {
	exchangeHistogram.WithLabelValues(source.Namespace, source.Name, operation).Observe(time.Since(begun).Seconds())
	if err == nil || errors.Is(err, gitserver.ErrBranchMoved) {
		return
	}
	reason := "Other"
	if p, ok := errors.AsType[*plan.Problem](err); ok {
		reason = p.Reason
	}
	exchangeErrorCounter.WithLabelValues(source.Namespace, source.Name, operation, reason).Inc()
}

// Rendered counts whether a sync rendered the branch, or skipped that.
func Rendered(source types.NamespacedName, yes bool) {
	result := "skipped"
	if yes {
		result = "rendered"
	}
	renderCounter.WithLabelValues(source.Namespace, source.Name, result).Inc()
}
