package verdict_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/measure"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/verdict"
)

// last makes the step of a lab the last one, after an earlier step at which the stable revision
// was measured.
func (l *lab) last(edit func(*v1alpha1.MetricRecord)) *lab {
	l.Last = true
	r := v1alpha1.MetricRecord{Name: l.metric().Name, SpecHash: l.metric().SpecHash, StableTotal: "10/1000",
		StableValues: []string{"1", "2", "3", "4", "5", "6"}}
	if edit != nil {
		edit(&r)
	}
	l.Status.Records = []v1alpha1.MetricRecord{r}
	l.Follow(nil, l.release)
	return l
}

// At the last step the stable revision may have no traffic. Then its values of earlier steps count,
// and the status says so. Each row has what is answered in each of three windows.
func TestLastStep_RecordedBaseline(t *testing.T) {
	higher := v1alpha1.Comparison{Worse: v1alpha1.WorseHigher, By: "1%"}
	errors, slow := compared(proportion(), higher), compared(gauge(), v1alpha1.Comparison{Worse: v1alpha1.WorseHigher, By: "1"})
	slow.Minimum = 3
	unlike := func(r *v1alpha1.MetricRecord) { r.SpecHash = "other" }
	empty := func(r *v1alpha1.MetricRecord) { r.StableTotal, r.StableValues = "", nil }
	for _, c := range []struct {
		metric                v1alpha1.Metric
		edit                  func(*v1alpha1.MetricRecord)
		answers, says, reason string
		recorded              bool
	}{
		{errors, nil, "4/400; NoData, 4/400; NoData, 4/400; NoData", "Pass", verdict.WithinLimits, true},
		{errors, nil, "4/400; TotalIsZero, 4/400; 0/0, 4/400; TotalIsZero", "Pass", verdict.WithinLimits, true},
		{errors, nil, "40/400; NoData", "Fail", verdict.WorseThanStable, true},
		{errors, nil, "4/400; 1/10, 4/400; 1/10, 4/400; 1/10", "Pass", verdict.WithinLimits, true},
		{errors, nil, "4/400; 4/400, 4/400; 4/400, 4/400; 4/400", "Pass", verdict.WithinLimits, false},
		{errors, nil, "4/400; PartialAnswer, 4/400; PartialAnswer, 4/400; PartialAnswer", "Unknown", verdict.PartialAnswer, false},
		{errors, nil, "4/400; SeveralSeries, 4/400; SeveralSeries", "Unknown", verdict.SeveralSeries, false},
		{errors, nil, "NoData; NoData, NoData; NoData, NoData; NoData", "Unknown", verdict.NoData, false},
		{errors, unlike, "4/400; NoData, 4/400; NoData, 4/400; NoData", "Unknown", verdict.NoData, false},
		{errors, empty, "4/400; NoData, 4/400; NoData, 4/400; NoData", "Unknown", verdict.NoData, false},
		{slow, nil, "1; NaN, 2; NaN, 3; NaN", "Pass", verdict.WithinLimits, true},
		{slow, nil, "9; NoData, 9; NoData, 9; NoData", "Fail", verdict.WorseThanStable, true},
		{slow, unlike, "1; NaN, 2; NaN, 3; NaN", "Unknown", verdict.NotANumber, false},
	} {
		l := newLab(c.metric).last(c.edit)
		for text := range strings.SplitSeq(c.answers, ", ") {
			l.give(text)
		}
		if m := l.metric(); string(m.Verdict) != c.says || m.Reason != c.reason || m.Recorded != c.recorded {
			t.Errorf("%s: %s: is %s %s, recorded %t (%s); want %s %s %t",
				c.metric.Name, c.answers, m.Verdict, m.Reason, m.Recorded, m.Message, c.says, c.reason, c.recorded)
		}
	}
}

// At another step the values of earlier ones do not count.
func TestEarlierSteps_HaveNoRecordedBaseline(t *testing.T) {
	l := newLab(compared(proportion(), v1alpha1.Comparison{Worse: v1alpha1.WorseHigher, By: "1%"})).last(nil)
	l.Last = false
	for range 3 {
		l.give("4/400; NoData")
	}
	if m := l.metric(); m.Verdict != v1alpha1.VerdictUnknown || m.Reason != verdict.NoData || m.Recorded {
		t.Errorf("is %s %s: %s", m.Verdict, m.Reason, m.Message)
	}
}

// A step whose metrics are not measured does not pass, however they came to be missing.
func TestMissingMetrics_DoNotPass(t *testing.T) {
	for name, edit := range map[string]func(*lab){
		"the plan has no metric":         func(l *lab) { l.Plan.Metrics = nil },
		"the step names another one":     func(l *lab) { l.Step.Metrics = []string{"errors", "gone"} },
		"the metrics come from files":    func(l *lab) { l.Plan.Metrics, l.Plan.From = nil, []string{"web-slo"} },
		"the background has another one": func(l *lab) { l.Plan.Background = []string{"gone"} },
		"the background has not begun":   func(l *lab) { l.Plan.Background = []string{"errors"} },
		"an override of another one":     func(l *lab) { l.Plan.Metrics, l.Overridden = nil, []string{"errors"} },
	} {
		l := newLab(proportion())
		for range 3 {
			l.give("1/100")
		}
		if l.Status.Verdict != v1alpha1.VerdictPass {
			t.Fatalf("without an edit it is %s", l.Status.Verdict)
		}
		edit(l)
		l.Arrange()
		l.Now = l.Now.Add(time.Hour)
		l.Follow(nil, l.release)
		if l.Status.Verdict == v1alpha1.VerdictPass {
			t.Errorf("%s: the step passes: %s", name, l.Status.Message)
		}
	}
}

// A number that overflows where it is added up, or would take hundreds of digits, is no value.
func TestHugeValues(t *testing.T) {
	for _, value := range []string{"1e301", "-1e308", "1.7976931348623157e308"} {
		p, v := newLab(proportion()), newLab(gauge())
		for range 3 {
			p.give("0/" + value + "; 0/100")
			v.give(value + "; 1")
		}
		for _, l := range []*lab{p, v} {
			if m := l.metric(); m.Verdict != v1alpha1.VerdictUnknown || m.Reason != verdict.NotANumber || m.Count != 0 {
				t.Errorf("%s of %s is %s %s: %s", value, m.Name, m.Verdict, m.Reason, m.Message)
			}
		}
	}
	l := newLab(proportion())
	for range 3 {
		l.give("1e200/1e299; 0/100")
	}
	if m := l.metric(); m.Verdict != v1alpha1.VerdictPass || len(m.Update) > 40 {
		t.Errorf("%s is %s: %s", m.Update, m.Verdict, m.Message)
	}
}

// If all requests fail, the part may exceed the whole in the last digit. That is a failure, and not
// an answer that cannot be used.
func TestAllRequestsFail(t *testing.T) {
	l := newLab(proportion())
	l.give("120.30000000000001/120.3; 0/100")
	if m := l.metric(); m.Verdict != v1alpha1.VerdictFail || m.Reason != verdict.AboveMax {
		t.Errorf("is %s %s: %s", m.Verdict, m.Reason, m.Message)
	}
}

// A value is held against a limit with all digits that a limit has.
func TestLimits_AreExact(t *testing.T) {
	for _, c := range []struct {
		limit v1alpha1.Decimal
		value string
		says  v1alpha1.Verdict
	}{
		{"99.999", "99.9988", v1alpha1.VerdictFail}, {"99.999", "99.999", v1alpha1.VerdictPass}, {"99.9999", "99.99985", v1alpha1.VerdictFail},
		{"1", "0.99999999", v1alpha1.VerdictFail}, {"1", "1", v1alpha1.VerdictPass}, {"0.000000001", "0.0000000009", v1alpha1.VerdictFail},
		{"100", "99.999999999999", v1alpha1.VerdictFail}, {"123456789012345.5", "123456789012345.4", v1alpha1.VerdictFail},
		{"123456789012345.5", "123456789012345.5", v1alpha1.VerdictPass},
	} {
		m := gauge()
		m.Max, m.Min = nil, decimal(c.limit)
		l := newLab(m)
		for range 3 {
			l.give(c.value + "; 1e16")
		}
		if m := l.metric(); m.Verdict != c.says || c.says == v1alpha1.VerdictFail && strings.Contains(m.Message, " "+string(c.limit)+" (") {
			t.Errorf("%s with the minimum %s is %s, want %s: %s", c.value, c.limit, m.Verdict, c.says, m.Message)
		}
	}
}

// All values of a step are kept, so that no failure is forgotten: what would have more is refused.
func TestValidate_KeepsAllValues(t *testing.T) {
	web := v1alpha1.Metric{Name: "w", Interval: seconds(10), Condition: "true", FailureLimit: 2, Web: &v1alpha1.WebMetric{URL: "https://x"}}
	value := gauge()
	value.Interval = seconds(10)
	warm, seldom := value, web
	warm.WarmUp, seldom.Interval = &metav1.Duration{Duration: 1<<63 - 1}, &metav1.Duration{Duration: 1<<63 - 1}
	for _, c := range []struct {
		metric v1alpha1.Metric
		of     time.Duration
		says   string // empty: it is allowed
	}{
		{web, 20 * time.Minute, ""}, {web, 20*time.Minute + time.Second, "121 values"},
		{value, 20 * time.Minute, ""}, {value, 21 * time.Minute, "126 values"}, {warm, time.Hour, "must be from 0s to 24h"},
		{seldom, time.Hour, "must be from 10s to 24h"}, {web, 1<<63 - 1, "must be from 10s to 720h"},
		{web, 721 * time.Hour, "must be from 10s to 720h"},
	} {
		s := v1alpha1.BatchStrategy{
			Steps:    []v1alpha1.Step{{Analysis: &v1alpha1.StepAnalysis{Duration: metav1.Duration{Duration: c.of}}}},
			Analysis: &v1alpha1.Analysis{Metrics: []v1alpha1.Metric{c.metric}},
		}
		errs := measure.Validate(&s, nil)
		if text := fmt.Sprint(errs.ToAggregate()); c.says == "" && len(errs) > 0 || !strings.Contains(text, c.says) {
			t.Errorf("%s in %s: %s", c.metric.Name, c.of, text)
		}
	}
}

// account is what answers come to, in whole numbers.
type account struct {
	failed, whole, windows int
	verdict                string
}

// add returns an answer with a value.
func (a *account) add(metric string, bad int) (text string) {
	a.windows++
	switch metric {
	case "errors": // at most 2 of 100
		a.failed, a.whole = a.failed+bad, a.whole+60
		return fmt.Sprintf("%d/60; 0/60", bad)
	case "latency": // at most 5, and once more
		a.failed += bad / 3
		return fmt.Sprintf("%d; 1", 3+bad)
	}
	a.failed += 1 - min(bad, 1)
	return fmt.Sprint(min(bad, 1))
}

// judge returns the verdict. Once there is one, nothing is measured any more.
func (a *account) judge(metric string) string {
	proportion := metric == "errors"
	switch {
	case a.verdict != "":
	case proportion && a.whole >= 100 && 50*a.failed > a.whole, !proportion && a.failed > 1:
		a.verdict = "Fail"
	case a.windows >= 3 && (!proportion || a.whole >= 100):
		a.verdict = "Pass"
	default:
		return "Unknown"
	}
	return a.verdict
}

// Random answers are judged by an account in whole numbers: which windows have values, and what
// these come to.
func TestRandomAnswers(t *testing.T) {
	web := v1alpha1.Metric{Name: "web", Interval: seconds(60), Condition: "true", FailureLimit: 1, Web: &v1alpha1.WebMetric{URL: "https://x"}}
	tolerant := gauge()
	tolerant.FailureLimit = 1
	unusable := []string{
		"NoData", "SeveralSeries", "PartialAnswer", "again ProviderUnavailable", "-", "ProviderRefused", "NaN", "NaN/100", "0/0", "9/3",
	}
	r := rand.New(rand.NewPCG(16, 1))
	for range 3000 {
		m := []v1alpha1.Metric{proportion(), tolerant, web}[r.IntN(3)]
		l := newLab(m)
		var given []string
		var known account
		for range 8 {
			text := unusable[r.IntN(len(unusable))]
			if m.Name != "errors" { // 0/0 is the value 0 to it
				text = unusable[r.IntN(7)]
			}
			if r.IntN(3) > 0 {
				text = known.add(m.Name, r.IntN(4))
			}
			given = append(given, text)
			l.give(text)
			want := known.judge(m.Name)
			if got := string(l.metric().Verdict); got != want {
				t.Fatalf("%s after %q is %s, want %s: %s", m.Name, given, got, want, l.metric().Message)
			}
			if got := string(l.Status.Verdict); got == "Pass" && want != "Pass" || got == "Fail" != (want == "Fail") {
				t.Fatalf("%s after %q: the step is %s, and the metric %s", m.Name, given, got, want)
			}
		}
	}
}

// A comparison with a limit stays open while both revisions are beyond it. Its later judgements have
// less of the confidence: of ten, chance alone does not make one a failure.
func TestStableFailsToo_LaterJudgementsAreStricter(t *testing.T) {
	m := proportion()
	m.Compare = &v1alpha1.Comparison{Worse: v1alpha1.WorseHigher, By: "0.1%"}
	l := newLab(m)
	for range 3 {
		l.give("50/1000; 50/1000")
	}
	l.give("92/1000; 50/1000") // p of the sums is 0.02: not so rare among ten judgements
	if got := l.metric(); got.Verdict != v1alpha1.VerdictUnknown || got.Reason != verdict.StableFailsToo || got.P == "" {
		t.Errorf("is %s %s with p %s: %s", got.Verdict, got.Reason, got.P, got.Message)
	}
	l.give("400/1000; 50/1000")
	if got := l.metric(); got.Verdict != v1alpha1.VerdictFail {
		t.Errorf("beyond doubt it is %s %s with p %s", got.Verdict, got.Reason, got.P)
	}
}

// A provider that does not answer for a while changes nothing but the time. Each window has the same
// values, the verdict is the same to the digit, and no failure is counted.
func TestOutage_ChangesNothingButTime(t *testing.T) {
	windows := []string{"9/1000; 1/1000", "6/1000; 3/1000", "7/1000; 2/1000"}
	for _, m := range []v1alpha1.Metric{
		compared(proportion(), v1alpha1.Comparison{Worse: v1alpha1.WorseHigher, By: "0.5%"}), proportion(),
	} {
		steady := newLab(m)
		for _, text := range windows {
			steady.give(text)
		}
		want := *steady.metric()
		for down := range 1 << len(windows) { // the windows at whose time the provider is down
			l := newLab(m)
			for i, text := range windows {
				for range 3 * (down >> i & 1) {
					l.give("again ProviderUnavailable")
					l.Now = l.Now.Add(time.Minute)
					l.Follow(nil, l.release)
					if l.Status.Verdict != v1alpha1.VerdictUnknown || l.Status.Reason == verdict.DeadlineExceeded {
						t.Fatalf("while it is down the step is %s %s", l.Status.Verdict, l.Status.Reason)
					}
				}
				l.give(text)
			}
			got := *l.metric()
			got.UnknownTime, want.UnknownTime = nil, nil
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("down at %b (-steady +down):\n%s", down, diff)
			}
		}
	}
}
