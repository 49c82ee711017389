package metrics

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// A whole release as its metrics tell it.
func TestRecord(t *testing.T) {
	begun := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	br := &v1alpha1.BatchRelease{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "measured"}}
	br.Spec.Strategy.Steps = []v1alpha1.Step{{Replicas: intstr.FromString("20%")}, {Replicas: intstr.FromString("100%")}}
	status := func(phase v1alpha1.ReleasePhase, step int32, state v1alpha1.StepState, since time.Duration, edit ...func(*v1alpha1.BatchReleaseStatus)) v1alpha1.BatchReleaseStatus {
		at := metav1.NewTime(begun.Add(since))
		s := v1alpha1.BatchReleaseStatus{Phase: phase, CurrentStepIndex: step, CurrentStepState: state, StepStateTime: &at, Replicas: 10, UpdateRevision: "u", UpdatedReplicas: 2}
		for _, e := range edit {
			e(&s)
		}
		return s
	}
	take := func(after time.Duration, s v1alpha1.BatchReleaseStatus) {
		Record(br, s, begun.Add(after))
		br.Status = s
	}
	value := func(name string, labels ...string) float64 { return valueOf(t, "tranche_release_"+name, labels...) }
	take(0, status(v1alpha1.PhaseRollingUpdate, 0, v1alpha1.StepUpgrade, 0))
	if got := value("target_replicas"); got != 2 {
		t.Errorf("target %v", got)
	}
	take(20*time.Second, status(v1alpha1.PhaseRollingUpdate, 0, v1alpha1.StepBlocking, 20*time.Second))
	if got := value("waiting_since_timestamp_seconds"); got != float64(begun.Add(20*time.Second).Unix()) {
		t.Errorf("waiting since %v", got)
	}
	take(200*time.Second, status(v1alpha1.PhaseRollingUpdate, 1, v1alpha1.StepUpgrade, 200*time.Second))
	if got := value("waiting_since_timestamp_seconds"); got != 0 {
		t.Errorf("waiting since %v after the gate has opened", got)
	}
	take(230*time.Second, status(v1alpha1.PhaseFinalizing, 1, v1alpha1.StepCompleted, 230*time.Second))
	done := func(s *v1alpha1.BatchReleaseStatus) {
		s.History = []v1alpha1.ReleaseRecord{{Revision: "u", Outcome: v1alpha1.OutcomeCompleted, EndTime: metav1.NewTime(begun.Add(231 * time.Second))}}
	}
	take(231*time.Second, status(v1alpha1.PhaseCompleted, 1, v1alpha1.StepCompleted, 231*time.Second, done))
	take(232*time.Second, status(v1alpha1.PhaseCompleted, 1, v1alpha1.StepCompleted, 231*time.Second, done))
	take(300*time.Second, status(v1alpha1.PhaseInitial, 0, v1alpha1.StepInitial, 300*time.Second, done, func(s *v1alpha1.BatchReleaseStatus) { s.RollingBack, s.UpdateRevision = true, "before" }))

	if got := value("phase", "Initial") - value("phase", "Completed"); got != 1 {
		t.Errorf("phase %v", got)
	}
	if got := testutil.ToFloat64(outcomeCounter.WithLabelValues("shop", "measured", "Completed")); got != 1 {
		t.Errorf("%v releases completed", got)
	}
	if got := testutil.ToFloat64(rollbackCounter.WithLabelValues("shop", "measured")); got != 1 {
		t.Errorf("%v rollbacks", got)
	}
	if n, sum := samples(t, stepHistogram); n != 2 || sum != 50 {
		t.Errorf("%d steps of %v seconds in all", n, sum)
	}
	if n, sum := samples(t, gateHistogram); n != 1 || sum != 180 {
		t.Errorf("%d gates of %v seconds in all", n, sum)
	}
	if got := value("ended_timestamp_seconds", "Completed"); got != float64(begun.Add(231*time.Second).Unix()) {
		t.Errorf("ended at %v", got)
	}
	Forget(types.NamespacedName{Namespace: "shop", Name: "measured"})
	if got := value("steps"); got != 0 {
		t.Errorf("gauges are left of a release that is gone: %v steps", got)
	}
	for _, v := range vectors {
		if n := v.DeletePartialMatch(prometheus.Labels{"release": "measured"}); n != 0 {
			t.Errorf("%d series are left of a release that is gone", n)
		}
	}
}

// valueOf is a gauge of the only release, as a scrape shows it; 0: it is not there.
func valueOf(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(gauges)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			has := func(value string) bool {
				return slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetValue() == value })
			}
			if f.GetName() == name && has("measured") && !slices.ContainsFunc(labels, func(l string) bool { return !has(l) }) {
				return m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// samples is how many observations a histogram of one release has, and their sum.
func samples(t *testing.T, h *prometheus.HistogramVec) (n uint64, sum float64) {
	t.Helper()
	var m dto.Metric
	if err := h.WithLabelValues("shop", "measured").(prometheus.Histogram).Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetHistogram().GetSampleCount(), m.GetHistogram().GetSampleSum()
}
