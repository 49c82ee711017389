package verdict

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/measure"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

const (
	// maxValues is how many values of a metric are kept on each side.
	maxValues = 120
	// largest is the largest number that counts. Sums of a few do not overflow.
	largest = 1e300
	// rounding is how much a part may exceed its whole. If all requests fail, the sums of the
	// same series differ in their last digits.
	rounding = 1 + 1e-9
	// maxMessage is the length of a message of an answer in status.
	maxMessage = 256
)

// Record puts the answer of the next measurement into the status of its metric. It takes no
// other answer: each is counted once, and in the order of the schedule, whatever the order in
// which they come.
func Record(m *v1alpha1.Metric, st *v1alpha1.MetricStatus, of *Measurement, a *Measured) {
	reason := missing(m, of, a)
	switch {
	case a.Retrying:
		st.Pending = retried(a)
		return
	case reason != nil:
		st.Unknown++
		remember(st, of, v1alpha1.MetricMeasurement{Reason: reason.Reason, Message: reason.Message})
		return
	}
	st.Count++
	one := v1alpha1.MetricMeasurement{Update: textOf(m, a.Update), Stable: textOf(m, a.Stable)}
	remember(st, of, one)
	if measure.HasTotal(m) {
		st.Update, st.Stable = add(st, one)
		return
	}
	kept := maxValues
	if st.Background {
		kept = measure.KeptWindows * int(measure.PerWindow(m))
	}
	st.UpdateValues = lastOf(append(st.UpdateValues, valuesOf(a.Update)...), kept)
	st.StableValues = lastOf(append(st.StableValues, valuesOf(a.Stable)...), kept)
}

// idle are the reasons for which a revision without traffic has no value.
var idle = map[string]bool{NoData: true, NotANumber: true, TotalIsZero: true}

// missing returns why an answer is not counted; nil: it is. An answer about the stable
// revision may be missing unless the metric compares. At the last step it may be if there was no
// traffic: then those of earlier steps count.
func missing(m *v1alpha1.Metric, of *Measurement, a *Measured) *v1alpha1.UnknownReason {
	if r := unusable(m, a.Update); r != nil {
		return r
	}
	if m.Compare == nil || of.Stable == nil {
		return nil
	}
	r := unusable(m, a.Stable)
	if r != nil && of.Recorded && idle[r.Reason] {
		return nil
	}
	if r != nil {
		r.Message = cut("stable revision: " + r.Message)
	}
	return r
}

// retried returns why an answer is asked for again.
func retried(a *Measured) *v1alpha1.UnknownReason {
	for _, side := range []*Answer{a.Update, a.Stable} {
		if side != nil && side.Unknown != "" {
			return &v1alpha1.UnknownReason{Reason: side.Unknown, Message: cut(side.Message)}
		}
	}
	return &v1alpha1.UnknownReason{Reason: ProviderUnavailable, Message: "there is no answer yet"}
}

func unusable(m *v1alpha1.Metric, a *Answer) *v1alpha1.UnknownReason {
	switch {
	case a == nil:
		return &v1alpha1.UnknownReason{Reason: BadAnswer, Message: "there is no answer"}
	case a.Unknown != "":
		return &v1alpha1.UnknownReason{Reason: a.Unknown, Message: cut(a.Message)}
	case len(a.Values) == 0 || measure.HasTotal(m) && (len(a.Values) != 1 || a.Total == ""):
		return &v1alpha1.UnknownReason{Reason: BadAnswer, Message: "the answer has no value"}
	}
	for _, v := range slices.Concat(a.Values, totals(a)) {
		if !isFinite(v) {
			return &v1alpha1.UnknownReason{Reason: NotANumber, Message: cut("the answer has the value " + v)}
		}
	}
	if !measure.HasTotal(m) {
		return nil
	}
	switch s := parseSum(a.Values[0] + "/" + a.Total); {
	case s.total == 0:
		return &v1alpha1.UnknownReason{Reason: TotalIsZero, Message: "total is 0"}
	case s.count < 0 || s.total < 0 || s.count > s.total*rounding:
		return &v1alpha1.UnknownReason{Reason: BadAnswer, Message: cut(s.String() + " is not a proportion")}
	}
	return nil
}

func totals(a *Answer) []string {
	if a.Total == "" {
		return nil
	}
	return []string{a.Total}
}

func cut(message string) string { return message[:min(len(message), maxMessage)] }

// textOf is the answer as a measurement in the status has it; empty without a value.
func textOf(m *v1alpha1.Metric, a *Answer) string {
	switch {
	case a == nil || unusable(m, a) != nil:
		return ""
	case measure.HasTotal(m):
		return parseSum(a.Values[0] + "/" + a.Total).String()
	}
	return short(median(numbers(a.Values)))
}

func valuesOf(a *Answer) []string {
	if a == nil || a.Unknown != "" {
		return nil
	}
	values := make([]string, 0, len(a.Values))
	for _, v := range a.Values {
		if isFinite(v) {
			values = append(values, exact(number(v)))
		}
	}
	return values
}

// remember puts the measurement at the end of the last five, and goes on to the next.
func remember(st *v1alpha1.MetricStatus, of *Measurement, one v1alpha1.MetricMeasurement) {
	one.N, one.To = of.N, metav1.Time{Time: of.To}
	if of.From.Before(of.To) {
		one.From = &metav1.Time{Time: of.From}
	}
	st.Measurements = lastOf(append(st.Measurements, one), measure.KeptWindows)
	st.Next, st.Pending = of.N+1, nil
}

// add returns the sums with a measurement. Those of a background metric are over the last
// windows.
func add(st *v1alpha1.MetricStatus, one v1alpha1.MetricMeasurement) (update, stable string) {
	if !st.Background {
		return sumOf(st.Update, one.Update), sumOf(st.Stable, one.Stable)
	}
	for _, m := range st.Measurements {
		update, stable = sumOf(update, m.Update), sumOf(stable, m.Stable)
	}
	return update, stable
}

func sumOf(a, b string) string {
	switch {
	case b == "":
		return a
	case a == "":
		return b
	}
	return parseSum(a).plus(parseSum(b)).String()
}

func lastOf[T any](list []T, n int) []T { return list[max(0, len(list)-n):] }

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// NewRecord returns the last verdict of a metric for the history, and for the comparison at the
// last step.
func NewRecord(m *v1alpha1.Metric, st *v1alpha1.MetricStatus, step int32, before *v1alpha1.MetricRecord) v1alpha1.MetricRecord {
	r := v1alpha1.MetricRecord{
		Name: st.Name, Background: st.Background, Step: step, Verdict: cmp.Or(st.Verdict, v1alpha1.VerdictUnknown), Reason: st.Reason,
		Message: st.Message, SpecHash: st.SpecHash, Update: st.Update, Stable: st.Stable, P: st.P,
	}
	if st.Background {
		return r
	}
	if before != nil && before.SpecHash == r.SpecHash {
		r.StableTotal, r.StableValues = before.StableTotal, before.StableValues
	}
	if m == nil || m.Compare == nil { // nothing is compared with it
		r.StableTotal, r.StableValues = "", nil
	} else {
		r.StableTotal = sumOf(r.StableTotal, st.Stable)
		r.StableValues = lastOf(slices.Concat(r.StableValues, st.StableValues), maxValues)
	}
	if len(st.UpdateValues) > 0 {
		r.Update = short(median(numbers(st.UpdateValues)))
	}
	if len(st.StableValues) > 0 {
		r.Stable = short(median(numbers(st.StableValues)))
	}
	return r
}

// isFinite reports whether a text is a number that can be added up.
func isFinite(text string) bool {
	f, err := strconv.ParseFloat(text, 64)
	return err == nil && math.Abs(f) <= largest // not NaN
}
