package measure

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Defaults of a metric.
const (
	DefaultInterval = time.Minute
	DefaultDelay    = 30 * time.Second
)

// KeptWindows is how many windows a background metric is judged by.
const KeptWindows = 5

// Timed reports whether a metric is measured at a moment, and not over a window.
func Timed(m *v1alpha1.Metric) bool { return m.Web != nil || m.Job != nil }

// HasTotal reports whether the metric is a proportion.
func HasTotal(m *v1alpha1.Metric) bool {
	return m.Prometheus != nil && m.Prometheus.Total != "" || m.Datadog != nil && m.Datadog.Total != ""
}

// Interval is the time between two measurements.
func Interval(m *v1alpha1.Metric) time.Duration { return duration(m.Interval, DefaultInterval) }

// Delay is the time from the end of a window until it is asked for.
func Delay(m *v1alpha1.Metric) time.Duration {
	if Timed(m) {
		return 0
	}
	return duration(m.Delay, DefaultDelay)
}

// WarmUp is the time before the first window.
func WarmUp(m *v1alpha1.Metric) time.Duration { return duration(m.WarmUp, 0) }

func duration(d *metav1.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return d.Duration
}

// Minimum is the least evidence by which a metric is judged.
func Minimum(m *v1alpha1.Metric) int32 {
	switch {
	case m.Minimum > 0:
		return m.Minimum
	case HasTotal(m):
		return v1alpha1.DefaultProportionMinimum
	}
	if m.Compare != nil && !Timed(m) {
		return NeededSamples(m)
	}
	return 1
}

// NeededSamples is the least number of values on each side with which a comparison can be
// significant. With n values a side, the smallest p-value is 1 divided by the number of ways to
// choose n of 2n. The last judgement has nine tenths of 1 - confidence at least. It has eight
// tenths if the window may be judged after it.
func NeededSamples(m *v1alpha1.Metric) int32 {
	confidence := 0.95
	if m.Compare.Confidence != "" {
		confidence, _ = Number(m.Compare.Confidence)
	}
	least := (1 - confidence) * 0.9
	if m.Compare.Prove || m.Max != nil || m.Min != nil {
		least = (1 - confidence) * 0.8
	}
	ways := 1.0
	for n := int32(1); n < 100; n++ {
		ways = ways * float64(2*(2*n-1)) / float64(n)
		if 1/ways < least {
			return n
		}
	}
	return 100
}

// PerWindow is the number of values that one measurement has.
func PerWindow(m *v1alpha1.Metric) int32 {
	if m.Prometheus == nil || m.Prometheus.Samples == nil || m.Prometheus.Samples.Duration <= 0 {
		return 1
	}
	return int32(max(1, Interval(m)/m.Prometheus.Samples.Duration))
}

// Planned is the number of measurements that a step's analysis of this duration needs: as many
// windows as cover it.
func Planned(m *v1alpha1.Metric, of time.Duration) int32 {
	switch {
	case Timed(m) && m.Count > 0:
		return m.Count
	case m.Job != nil:
		return 1
	}
	interval := Interval(m)
	return int32(max(1, (of-WarmUp(m)+interval-1)/interval))
}

// Window returns the n-th window, from 1, and when to ask for it. The schedule has it where it
// is, whatever happened meanwhile.
func Window(m *v1alpha1.Metric, start time.Time, n int32) (from, to, at time.Time) {
	interval := Interval(m)
	to = start.Add(WarmUp(m) + time.Duration(n)*interval)
	if Timed(m) {
		to = to.Add(-interval)
		return to, to, to
	}
	return to.Add(-interval), to, to.Add(Delay(m))
}

// Due is when the verdict of a step's metric is due.
func Due(m *v1alpha1.Metric, start time.Time, of time.Duration) time.Time {
	_, _, at := Window(m, start, Planned(m, of))
	return later(at, start.Add(of))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// SpecHash is a digest of what is asked: sources, queries and the schedule. Limits have no part
// in it, so that an edit of them judges the values that are there.
func SpecHash(m *v1alpha1.Metric) string {
	asked := v1alpha1.Metric{
		Name: m.Name, Prometheus: m.Prometheus, Web: m.Web, Job: m.Job, Datadog: m.Datadog, Scope: m.Scope, Condition: m.Condition,
		Interval: &metav1.Duration{Duration: Interval(m)}, WarmUp: &metav1.Duration{Duration: WarmUp(m)},
		Delay: &metav1.Duration{Duration: Delay(m)}, NoData: m.NoData,
	}
	if asked.Scope == "" {
		asked.Scope = v1alpha1.ScopeRevision
	}
	if asked.NoData == "" {
		asked.NoData = v1alpha1.NoDataUnknown
	}
	text, err := json.Marshal(asked)
	if err != nil {
		return "" // it consists of strings and numbers
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
