// Package metrics has the metrics of releases. docs/metrics.md explains them.
package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	registry "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// The gauges are what
// the status said at the last round; the counters and histograms are of this
// process.
var (
	releaseLabels = []string{"namespace", "release"}

	phaseGauge     = gauge("phase", "1 for the phase that the release is in.", "phase")
	conditionGauge = gauge("condition", "1 for the status that a condition of the release has, 0 for the others.", "condition", "status")
	stepGauge      = gauge("step", "Step that the release is at, from 0.")
	stepsGauge     = gauge("steps", "Number of steps of the plan.")
	replicasGauge  = gauge("replicas", "Replicas of the Deployment.")
	updatedGauge   = gauge("updated_replicas", "Pods of the update revision.")
	availableGauge = gauge("updated_available_replicas", "Available pods of the update revision.")
	targetGauge    = gauge("target_replicas", "Pods that the update revision is to have at the present step.")
	waitingGauge   = gauge("waiting_since_timestamp_seconds",
		"When the release began to wait at the present gate, as a Unix time; 0 while it does not wait.")

	endedGauge = gauge("ended_timestamp_seconds", "When the last release that has ended did, as a Unix time.", "outcome")

	gauges = &readings{of: map[types.NamespacedName]reading{}}

	outcomeCounter  = counter("outcomes_total", "Releases that have ended.", "outcome")
	rollbackCounter = counter("rollbacks_total", "Ways back that have begun.")

	stepHistogram = histogram("step_duration_seconds", "From the beginning of a step to its pods being available.",
		1, 5, 15, 60, 300, 900, 3600)
	gateHistogram = histogram("gate_wait_seconds", "From a step's pods being available to its gate being open.",
		1, 60, 300, 1800, 7200, 28800, 86400)
)

func gauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName("tranche", "release", name), help, append(releaseLabels[:2:2], labels...), nil)
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "tranche", Subsystem: "release", Name: name, Help: help,
	}, append(releaseLabels[:2:2], labels...))
}

func histogram(name, help string, buckets ...float64) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "tranche", Subsystem: "release", Name: name, Help: help, Buckets: buckets,
	}, releaseLabels)
}

// vectors have series by release.
var vectors = []interface {
	prometheus.Collector
	DeletePartialMatch(prometheus.Labels) int
}{outcomeCounter, rollbackCounter, stepHistogram, gateHistogram}

func init() {
	registry.Registry.MustRegister(gauges)
	for _, v := range vectors {
		registry.Registry.MustRegister(v)
	}
}

// reading is what the gauges of one release say.
type reading struct {
	phase                                v1alpha1.ReleasePhase
	conditions                           [len(conditionTypes)]metav1.ConditionStatus // empty: it has none
	step, steps                          int32
	replicas, updated, available, target int32
	waiting                              int64 // Unix time; 0: no
	ended                                int64 // Unix time; 0: none has ended
	outcome                              v1alpha1.ReleaseOutcome
}

var conditionTypes = [...]string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionHeld, v1alpha1.ConditionStalled}

// readings of thousands of idle releases are small, and made into series only
// when they are asked for.
type readings struct {
	mu sync.Mutex
	of map[types.NamespacedName]reading
}

// Describe tells which metrics there are.
func (g *readings) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		phaseGauge, conditionGauge, stepGauge, stepsGauge, replicasGauge, updatedGauge, availableGauge, targetGauge, waitingGauge,
		endedGauge,
	} {
		ch <- d
	}
}

// Collect makes the series of all releases.
func (g *readings) Collect(ch chan<- prometheus.Metric) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, r := range g.of {
		send := func(d *prometheus.Desc, value float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, append([]string{name.Namespace, name.Name}, labels...)...)
		}
		send(phaseGauge, 1, string(r.phase))
		for i, status := range r.conditions {
			// Both are always there: the last sample of a leader that is gone then tells
			// what was.
			for _, s := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown} {
				switch {
				case status == "":
				case s == status:
					send(conditionGauge, 1, conditionTypes[i], string(s))
				case s != metav1.ConditionUnknown:
					send(conditionGauge, 0, conditionTypes[i], string(s))
				}
			}
		}
		send(stepGauge, float64(r.step))
		send(stepsGauge, float64(r.steps))
		send(replicasGauge, float64(r.replicas))
		send(updatedGauge, float64(r.updated))
		send(availableGauge, float64(r.available))
		send(targetGauge, float64(r.target))
		send(waitingGauge, float64(r.waiting))
		if r.ended != 0 {
			send(endedGauge, float64(r.ended), string(r.outcome))
		}
	}
}

// Forget forgets a release that is gone.
func Forget(release types.NamespacedName) {
	gauges.mu.Lock()
	delete(gauges.of, release)
	gauges.mu.Unlock()
	for _, v := range vectors {
		v.DeletePartialMatch(prometheus.Labels{"namespace": release.Namespace, "release": release.Name})
	}
}

// Record takes the metrics of a release whose status has become new.
func Record(br *v1alpha1.BatchRelease, new v1alpha1.BatchReleaseStatus, now time.Time) {
	r := reading{
		phase: new.Phase, step: new.CurrentStepIndex, steps: int32(len(br.Spec.Strategy.Steps)),
		replicas: new.Replicas, updated: new.UpdatedReplicas, available: new.UpdatedAvailableReplicas,
		target: target(br.Spec.Strategy.Steps, new),
	}
	for i, c := range conditionTypes {
		if c := meta.FindStatusCondition(new.Conditions, c); c != nil {
			r.conditions[i] = c.Status
		}
	}
	if atGate(new) && new.StepStateTime != nil {
		r.waiting = new.StepStateTime.Unix()
	}
	if len(new.History) > 0 {
		r.ended, r.outcome = new.History[0].EndTime.Unix(), new.History[0].Outcome
	}
	gauges.mu.Lock()
	gauges.of[types.NamespacedName{Namespace: br.Namespace, Name: br.Name}] = r
	gauges.mu.Unlock()
	if underWay(br.Status) || underWay(new) {
		measureChange(br.Namespace, br.Name, br.Status, new, now)
	}
}

func underWay(s v1alpha1.BatchReleaseStatus) bool {
	return s.Phase != "" && s.Phase != v1alpha1.PhaseCompleted
}

// measureChange counts what has ended or begun between two statuses.
func measureChange(ns, name string, old, new v1alpha1.BatchReleaseStatus, now time.Time) {
	rollbacks := rollbackCounter.WithLabelValues(ns, name) // 0 from the beginning, so that increases are seen
	if new.RollingBack && !old.RollingBack {
		rollbacks.Inc()
	}
	for _, outcome := range []v1alpha1.ReleaseOutcome{v1alpha1.OutcomeCompleted, v1alpha1.OutcomeRolledBack, v1alpha1.OutcomeSuperseded} {
		outcomeCounter.WithLabelValues(ns, name, string(outcome)).Add(float64(countEnded(old.History, new.History, outcome)))
	}
	if old.StepStateTime == nil || old.UpdateRevision != new.UpdateRevision || new.CurrentStepIndex < old.CurrentStepIndex {
		return
	}
	took := max(0, now.Sub(old.StepStateTime.Time).Seconds())
	left := old.CurrentStepIndex != new.CurrentStepIndex || old.CurrentStepState != new.CurrentStepState
	switch {
	case left && old.CurrentStepState == v1alpha1.StepUpgrade:
		stepHistogram.WithLabelValues(ns, name).Observe(took)
	case left && atGate(old):
		gateHistogram.WithLabelValues(ns, name).Observe(took)
	}
}

// countEnded returns how many releases have ended in this way since the old history.
func countEnded(old, new []v1alpha1.ReleaseRecord, outcome v1alpha1.ReleaseOutcome) int {
	ended := 0
	for _, r := range new {
		if len(old) > 0 && r.EndTime.Equal(&old[0].EndTime) && r.Revision == old[0].Revision {
			break
		}
		if r.Outcome == outcome {
			ended++
		}
	}
	return ended
}

func atGate(s v1alpha1.BatchReleaseStatus) bool {
	return s.Phase == v1alpha1.PhaseRollingUpdate && s.CurrentStepState == v1alpha1.StepBlocking
}

// target is how many pods the update revision is to have.
func target(steps []v1alpha1.Step, s v1alpha1.BatchReleaseStatus) int32 {
	if s.Phase == v1alpha1.PhaseCompleted || s.RollingBack {
		return s.Replicas
	}
	return plan.Target(steps, min(int(s.CurrentStepIndex), len(steps)-1), s.Replicas)
}
