package rollout

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// The metrics of a release; docs/metrics.md explains them. The gauges are what
// the status said at the last round; the counters and histograms are of this
// process.
var (
	releaseLabels = []string{"namespace", "release"}

	phaseGauge     = gauge("phase", "1 for the phase that the release is in, 0 for the others.", "phase")
	conditionGauge = gauge("condition", "1 for the status that a condition of the release has, 0 for the others.", "condition", "status")
	stepGauge      = gauge("step", "Step that the release is at, from 0.")
	stepsGauge     = gauge("steps", "Number of steps of the plan.")
	replicasGauge  = gauge("replicas", "Replicas of the Deployment.")
	updatedGauge   = gauge("updated_replicas", "Pods of the update revision.")
	availableGauge = gauge("updated_available_replicas", "Available pods of the update revision.")
	targetGauge    = gauge("target_replicas", "Pods that the update revision is to have at the present step.")
	waitingGauge   = gauge("waiting_since_timestamp_seconds", "When the release began to wait at the present gate, as a Unix time; 0 while it does not wait.")

	outcomeCounter  = counter("outcomes_total", "Releases that have ended.", "outcome")
	rollbackCounter = counter("rollbacks_total", "Ways back that have begun.")

	stepHistogram = histogram("step_duration_seconds", "From the beginning of a step to its pods being available.", 1, 5, 15, 60, 300, 900, 3600)
	gateHistogram = histogram("gate_wait_seconds", "From a step's pods being available to its gate being open.", 1, 60, 300, 1800, 7200, 28800, 86400)
)

func gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "tranche", Subsystem: "release", Name: name, Help: help}, append(releaseLabels[:2:2], labels...))
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "tranche", Subsystem: "release", Name: name, Help: help}, append(releaseLabels[:2:2], labels...))
}

func histogram(name, help string, buckets ...float64) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "tranche", Subsystem: "release", Name: name, Help: help, Buckets: buckets}, releaseLabels)
}

// vector is what all of them have in common.
type vector interface {
	prometheus.Collector
	DeletePartialMatch(prometheus.Labels) int
}

var vectors = []vector{
	phaseGauge, conditionGauge, stepGauge, stepsGauge, replicasGauge, updatedGauge, availableGauge, targetGauge, waitingGauge,
	outcomeCounter, rollbackCounter, stepHistogram, gateHistogram,
}

func init() {
	for _, v := range vectors {
		metrics.Registry.MustRegister(v)
	}
}

// unmeasure forgets a release that is gone.
func unmeasure(release types.NamespacedName) {
	for _, v := range vectors {
		v.DeletePartialMatch(prometheus.Labels{"namespace": release.Namespace, "release": release.Name})
	}
}

// measure takes the metrics of a release whose status has become new.
func measure(br *v1alpha1.BatchRelease, new v1alpha1.BatchReleaseStatus, now time.Time) {
	old, ns, name := br.Status, br.Namespace, br.Name
	for _, p := range []v1alpha1.ReleasePhase{v1alpha1.PhaseInitial, v1alpha1.PhaseRollingUpdate, v1alpha1.PhaseFinalizing, v1alpha1.PhaseCompleted} {
		phaseGauge.WithLabelValues(ns, name, string(p)).Set(one(new.Phase == p))
	}
	for _, c := range []string{engine.ConditionReady, engine.ConditionReconciling, engine.ConditionHeld, engine.ConditionStalled} {
		for _, s := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown} {
			conditionGauge.WithLabelValues(ns, name, c, string(s)).Set(one(meta.IsStatusConditionPresentAndEqual(new.Conditions, c, s)))
		}
	}
	stepGauge.WithLabelValues(ns, name).Set(float64(new.CurrentStepIndex))
	stepsGauge.WithLabelValues(ns, name).Set(float64(len(br.Spec.Strategy.Steps)))
	replicasGauge.WithLabelValues(ns, name).Set(float64(new.Replicas))
	updatedGauge.WithLabelValues(ns, name).Set(float64(new.UpdatedReplicas))
	availableGauge.WithLabelValues(ns, name).Set(float64(new.UpdatedAvailableReplicas))
	targetGauge.WithLabelValues(ns, name).Set(float64(target(br.Spec.Strategy.Steps, new)))
	waiting := 0.0
	if atGate(new) && new.StepStateTime != nil {
		waiting = float64(new.StepStateTime.Unix())
	}
	waitingGauge.WithLabelValues(ns, name).Set(waiting)
	measureChange(ns, name, old, new, now)
}

// measureChange counts what has ended or begun between two statuses.
func measureChange(ns, name string, old, new v1alpha1.BatchReleaseStatus, now time.Time) {
	rollbacks := rollbackCounter.WithLabelValues(ns, name) // 0 from the beginning, so that increases are seen
	if new.RollingBack && !old.RollingBack {
		rollbacks.Inc()
	}
	for _, outcome := range []v1alpha1.ReleaseOutcome{v1alpha1.OutcomeCompleted, v1alpha1.OutcomeRolledBack, v1alpha1.OutcomeSuperseded} {
		ended := 0
		for _, r := range new.History {
			if len(old.History) > 0 && r.EndTime.Equal(&old.History[0].EndTime) && r.Revision == old.History[0].Revision {
				break
			}
			if r.Outcome == outcome {
				ended++
			}
		}
		outcomeCounter.WithLabelValues(ns, name, string(outcome)).Add(float64(ended))
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

func atGate(s v1alpha1.BatchReleaseStatus) bool {
	return s.Phase == v1alpha1.PhaseRollingUpdate && s.CurrentStepState == v1alpha1.StepBlocking
}

// target is how many pods the update revision is to have.
func target(steps []v1alpha1.Step, s v1alpha1.BatchReleaseStatus) int32 {
	if s.Phase == v1alpha1.PhaseCompleted || s.RollingBack {
		return s.Replicas
	}
	var n int32
	for i, step := range steps {
		if int32(i) <= s.CurrentStepIndex {
			n = max(n, plan.Limit(step.Replicas, s.Replicas))
		}
	}
	return n
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
