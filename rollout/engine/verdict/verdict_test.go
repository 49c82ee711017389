package verdict_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/measure"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/verdict"
)

var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func decimal(s v1alpha1.Decimal) *v1alpha1.Decimal { return &s }
func seconds(n int) *metav1.Duration {
	return &metav1.Duration{Duration: time.Duration(n) * time.Second}
}

// proportion is errors of requests, at most 2%, in windows of 60 s.
func proportion() v1alpha1.Metric {
	return v1alpha1.Metric{
		Name: "errors", Max: decimal("2%"), Interval: seconds(60), Minimum: 100,
		Prometheus: &v1alpha1.PrometheusMetric{Provider: "p", Query: `e{pod=~"$(pods)"}`, Total: `t{pod=~"$(pods)"}`},
	}
}

// gauge is a value of at most 5, in windows of 60 s.
func gauge() v1alpha1.Metric {
	return v1alpha1.Metric{
		Name: "latency", Max: decimal("5"), Interval: seconds(60),
		Prometheus: &v1alpha1.PrometheusMetric{Provider: "p", Query: `l{pod=~"$(pods)"}`},
	}
}

func compared(m v1alpha1.Metric, c v1alpha1.Comparison) v1alpha1.Metric {
	m.Max, m.Compare = nil, &c
	return m
}

// answer reads "4/100" as a proportion, "1 2 3" as values, and a word as a reason.
func answer(text string) *verdict.Answer {
	switch {
	case text == "-":
		return nil
	case text[0] >= 'A' && text[0] <= 'Z' && !strings.HasPrefix(text, "NaN") && text != "Inf":
		return &verdict.Answer{Unknown: text, Message: "told so"}
	}
	value, total, _ := strings.Cut(text, "/")
	return &verdict.Answer{Values: strings.Fields(value), Total: total}
}

// lab measures one metric at a step of three windows.
type lab struct {
	verdict.Track
	release verdict.Release
}

func newLab(m v1alpha1.Metric) *lab {
	l := &lab{
		Track: verdict.Track{
			Plan:   &v1alpha1.Analysis{Metrics: []v1alpha1.Metric{m}},
			Step:   &v1alpha1.StepAnalysis{Duration: *seconds(180)},
			Status: &v1alpha1.AnalysisStatus{StartTime: &metav1.Time{Time: began}, Round: 1},
			Now:    began,
		},
		release: verdict.Release{Key: verdict.Key{Namespace: "shop", Plan: "web", Revision: "new"}, Deployment: "web",
			Update: "web-new", Stable: "web-old", StableRevision: "old"},
	}
	l.Arrange()
	l.Follow(nil, l.release)
	return l
}

// metric is the status of the one metric.
func (l *lab) metric() *v1alpha1.MetricStatus { return &l.Status.Metrics[0] }

// give answers the next measurement when it is due: "update; stable".
func (l *lab) give(text string) {
	next := l.Next(l.metric(), l.release)
	if next == nil {
		return
	}
	retrying := strings.HasPrefix(text, "again ")
	update, stable, _ := strings.Cut(strings.TrimPrefix(text, "again "), "; ")
	if stable == "" {
		stable = update
	}
	if next.At.After(l.Now) {
		l.Now = next.At
	}
	l.Follow([]verdict.Measured{{Key: next.Key, Update: answer(update), Stable: answer(stable), Retrying: retrying}}, l.release)
}

// corner is a row of the table of corners.
type corner struct {
	metric          v1alpha1.Metric
	answers         string // of each window, "update; stable", between commas
	verdict, reason string
	why             string
}

// comparisonCorners are of metrics that compare with the stable revision.
func comparisonCorners() []corner {
	higher := v1alpha1.Comparison{Worse: v1alpha1.WorseHigher, By: "0.5%"}
	limited := func(c v1alpha1.Comparison) v1alpha1.Metric {
		m := proportion()
		m.Compare = &c
		return m
	}
	proven := higher
	proven.Prove = true
	return []corner{
		{compared(proportion(), higher), "40/1000; 1/1000", "Fail", verdict.WorseThanStable, "p is far below 0.001 at the first look"},
		{compared(proportion(), higher), "9/1000; 1/1000", "Unknown", verdict.Measuring, "p of 0.01 decides nothing before the end"},
		{compared(proportion(), higher), "9/1000; 1/1000, 6/1000; 3/1000, 7/1000; 2/1000", "Fail", verdict.WorseThanStable,
			"and does at the end"},
		{compared(proportion(), higher), "30/9000; 1/9000, 30/9000; 1/9000, 30/9000; 1/9000", "Pass", verdict.WithinLimits,
			"significant, and less than compare.by"},
		{compared(proportion(), higher), "1/1000; 1/1000, 1/1000; 1/1000, 1/1000; 1/1000", "Pass", verdict.WithinLimits,
			"no harm is seen"},
		{compared(proportion(), higher), "0/1000; NoData, 0/1000; NoData, 0/1000; NoData", "Unknown", verdict.NoData,
			"nothing to compare with"},
		{compared(proportion(), higher), "0/1000; 0/20, 0/1000; 0/20, 0/1000; 0/20", "Unknown", verdict.BelowMinimum,
			"60 of stable are not 100"},
		{compared(proportion(), proven), "1/200; 1/200, 1/200; 1/200, 1/200; 1/200", "Unknown", verdict.NotProven,
			"harm is not excluded"},
		{compared(proportion(), proven), "1/9000; 1/9000, 1/9000; 1/9000, 1/9000; 1/9000", "Pass", verdict.WithinLimits,
			"harm is excluded"},
		{limited(higher), "300/1000; 30/1000", "Fail", verdict.WorseThanStable, "both are above the limit, and one is much worse"},
		{limited(higher), "30/1000; 30/1000, 30/1000, 30/1000", "Unknown", verdict.StableFailsToo, "both are above the limit alike"},
	}
}

// corners are of metrics with limits, and of checks.
func corners() []corner {
	web := v1alpha1.Metric{Name: "checkout", Interval: seconds(60), Condition: "true", Web: &v1alpha1.WebMetric{URL: "https://x"}}
	tolerant := web
	tolerant.FailureLimit = 1
	job := v1alpha1.Metric{Name: "smoke", Interval: seconds(60), Job: &v1alpha1.JobMetric{From: "smoke"}}
	limit := gauge()
	limit.FailureLimit = 1
	return []corner{
		{proportion(), "1/100, 1/100, 1/100", "Pass", verdict.WithinLimits, "all windows are within the limit"},
		{proportion(), "1/100, 1/100", "Unknown", verdict.Measuring, "a window of the duration is missing"},
		{proportion(), "3/100; 0/100", "Fail", verdict.AboveMax, "the limit fails at any time, once there is the minimum"},
		{proportion(), "3/99; 0/100", "Unknown", verdict.Measuring, "below the minimum nothing is judged"},
		{proportion(), "0/30, 0/30, 0/30", "Unknown", verdict.BelowMinimum, "90 requests are not 100"},
		{proportion(), "0/30, 0/30, 0/30, 0/30", "Pass", verdict.WithinLimits, "the analysis grows until it has the minimum"},
		{proportion(), "9/100; 9/100, 9/100, 9/100", "Unknown", verdict.StableFailsToo, "no rollback into an outage"},
		{proportion(), "9/100; 1/50", "Fail", verdict.AboveMax, "50 requests of stable prove no outage"},
		{proportion(), "NoData, NoData, NoData", "Unknown", verdict.NoData, "an empty answer is neither good nor bad"},
		{proportion(), "NoData, 1/100, 1/100, 1/100", "Pass", verdict.WithinLimits, "a window without data is made up for"},
		{proportion(), "NoData, 1/100, 1/100", "Unknown", verdict.Measuring, "two of three windows have data"},
		{proportion(), "NaN/100, 1/100", "Unknown", verdict.Measuring, "NaN is no value, and the next window is one"},
		{proportion(), "1/100, 1/100, NaN/100", "Unknown", verdict.NotANumber, "NaN passes nothing"},
		{proportion(), "1/100, 1/100, 1/Inf", "Unknown", verdict.NotANumber, "a total without end is no total"},
		{proportion(), "1/100, 1/100, 0/0", "Unknown", verdict.TotalIsZero, "nothing of nothing is no proportion"},
		{proportion(), "1/100, 1/100, 200/100", "Unknown", verdict.BadAnswer, "two queries that do not belong together"},
		{proportion(), "1/100, 1/100, -1/100", "Unknown", verdict.BadAnswer, "a count below zero"},
		{proportion(), "1/100, 1/100, 1", "Unknown", verdict.BadAnswer, "the total is missing"},
		{proportion(), "1/100, 1/100, SeveralSeries", "Unknown", verdict.SeveralSeries, "of several series none is the value"},
		{proportion(), "1/100, 1/100, PartialAnswer", "Unknown", verdict.PartialAnswer, "a warning says that data may be missing"},
		{proportion(), "1/100, 1/100, again ProviderUnavailable", "Unknown", verdict.ProviderUnavailable, "the provider is asked again"},
		{proportion(), "1/100, 1/100, again ProviderUnavailable, 1/100", "Pass", verdict.WithinLimits, "and the same window counts then"},
		{proportion(), "1/100, 1/100, ProviderRefused", "Unknown", verdict.ProviderRefused, "4xx is no failure of the release"},
		{proportion(), "1/100, 1/100, ClockSkew", "Unknown", verdict.ClockSkew, "a window by another clock is another window"},
		{proportion(), "1/100; NoData, 1/100; NoData, 1/100; NoData", "Pass", verdict.WithinLimits, "a limit needs no stable revision"},
		{gauge(), "1, 2, 3", "Pass", verdict.WithinLimits, "each value is within the limit"},
		{gauge(), "1, 9; 1", "Fail", verdict.AboveMax, "one value is above it"},
		{limit, "1, 9; 1, 2", "Pass", verdict.WithinLimits, "one may be"},
		{limit, "9; 1, 9; 1", "Fail", verdict.AboveMax, "and two may not"},
		{gauge(), "9, 9, 9", "Unknown", verdict.StableFailsToo, "the stable revision is slow, too"},
		{gauge(), "1, 2, NaN", "Unknown", verdict.NotANumber, "a quantile without requests is NaN"},
		{gauge(), "1, 2, Inf", "Unknown", verdict.NotANumber, "or infinite"},
		{gauge(), "1, 2, -", "Unknown", verdict.BadAnswer, "there is no answer"},
		{web, "1, 1, 1", "Pass", verdict.WithinLimits, "each check passes"},
		{web, "1, 0", "Fail", verdict.ChecksFailed, "one fails"},
		{tolerant, "0, 1, 1", "Pass", verdict.WithinLimits, "one may fail"},
		{tolerant, "0, 0", "Fail", verdict.ChecksFailed, "and two may not"},
		{web, "1, 1, ConditionFailed", "Unknown", verdict.ConditionFailed, "an answer that the condition cannot read"},
		{job, "1", "Pass", verdict.WithinLimits, "exit code 0"},
		{job, "0", "Fail", verdict.ChecksFailed, "exit code 1"},
		{job, "JobNotRun", "Unknown", verdict.JobNotRun, "OOM, eviction, and exit codes from 126"},
		{job, "JobNotRun, 1", "Pass", verdict.WithinLimits, "another Job runs at the next interval"},
	}
}

// TestCorners has the rows of the table of corners, each as what windows answer.
func TestCorners(t *testing.T) {
	for _, c := range slices.Concat(corners(), comparisonCorners()) {
		l := newLab(c.metric)
		for text := range strings.SplitSeq(c.answers, ", ") {
			l.give(text)
		}
		if got := l.metric(); string(got.Verdict) != c.verdict || got.Reason != c.reason {
			t.Errorf("%s: %s: is %s %s (%s), want %s %s: %s",
				c.metric.Name, c.answers, got.Verdict, got.Reason, got.Message, c.verdict, c.reason, c.why)
		}
	}
}

// TestSteps: what the metrics of a step come to together.
func TestSteps(t *testing.T) {
	l := newLab(gauge())
	l.Plan.Metrics = append(l.Plan.Metrics, proportion())
	l.Arrange()
	l.Follow(nil, l.release)
	says := func(when, want string) {
		t.Helper()
		if got := fmt.Sprint(l.Status.Verdict, " ", l.Status.Reason); got != want {
			t.Fatalf("%s: the step is %s, want %s", when, got, want)
		}
	}
	adds := func(want string) {
		t.Helper()
		if !strings.Contains(l.Status.Message, want+"; latency ") {
			t.Errorf("the message is %q, want %q, and then the other metric", l.Status.Message, want)
		}
	}
	says("at the beginning", "Unknown Measuring")
	l.give("1")
	l.give("1")
	l.give("1")
	says("with one metric that passes, and one that has no value", "Unknown Measuring")
	l.Now = l.Now.Add(9 * time.Minute)
	l.Follow(nil, l.release)
	says("nine minutes after the verdict was due", "Unknown Measuring")
	l.Now = l.Now.Add(time.Minute)
	l.Follow(nil, l.release)
	says("ten minutes after", "Unknown UnknownDeadlineExceeded")
	l.Plan.OnUnknown = v1alpha1.UnknownPass
	l.Follow(nil, l.release)
	says("where Unknown passes", "Pass Passed")
	adds("(unknown for too long, and onUnknown is Pass)")
	l.Plan.OnUnknown, l.Overridden = "", []string{"errors"}
	l.Follow(nil, l.release)
	says("with an override of the metric", "Pass Passed")
	adds("(overridden)")
	l.Overridden = []string{"latency"}
	l.Follow(nil, l.release)
	says("with an override of the other one", "Unknown UnknownDeadlineExceeded")
}

// TestEdits: an edited limit judges the values that are there, and an edited query measures
// again.
func TestEdits(t *testing.T) {
	l := newLab(proportion())
	for range 3 {
		l.give("3/100; 0/100")
	}
	if l.metric().Verdict != v1alpha1.VerdictFail || l.metric().Count != 1 {
		t.Fatalf("is %s after %d windows, want Fail after the first", l.metric().Verdict, l.metric().Count)
	}
	edit := func(f func(*v1alpha1.Metric)) {
		f(&l.Plan.Metrics[0])
		l.Arrange()
		l.Follow(nil, l.release)
	}
	edit(func(m *v1alpha1.Metric) { m.Max = decimal("5%") })
	if got := l.metric(); got.Verdict != v1alpha1.VerdictUnknown || got.Count != 1 {
		t.Fatalf("with a higher limit it is %s with %d windows, want Unknown with the one that was measured", got.Verdict, got.Count)
	}
	l.give("3/100; 0/100")
	edit(func(m *v1alpha1.Metric) { m.Prometheus.Query += " > 0" })
	if got := l.metric(); got.Count != 0 || got.Next != 1 || got.Update != "" {
		t.Fatalf("with another query it has %d windows and %q, want none", got.Count, got.Update)
	}
}

// TestSchedule: windows keep their places, however late they are asked for. Windows that are
// answered together give the verdict that they give one by one.
func TestSchedule(t *testing.T) {
	m := proportion()
	m.WarmUp = seconds(30)
	answers := []string{"1/100; 0/100", "2/100; 0/100", "3/100; 0/100", "0/100; 0/100"}
	one, late := newLab(m), newLab(m)
	var given []verdict.Measured
	for i, text := range answers {
		next := one.Next(one.metric(), one.release)
		if next == nil {
			break
		}
		to := began.Add(30*time.Second + time.Duration(i+1)*time.Minute)
		if !next.To.Equal(to) || !next.From.Equal(to.Add(-time.Minute)) || !next.At.Equal(to.Add(30*time.Second)) {
			t.Fatalf("window %d is %s to %s, asked at %s", i+1, next.From, next.To, next.At)
		}
		update, stable, _ := strings.Cut(text, "; ")
		given = append(given, verdict.Measured{Key: next.Key, Update: answer(update), Stable: answer(stable)})
		one.give(text)
	}
	late.Now = began.Add(time.Hour)
	slices.Reverse(given) // they come in any order
	late.Follow(given, late.release)
	if a, b := *one.metric(), *late.metric(); a.Verdict != b.Verdict || a.Update != b.Update || a.Count != b.Count || a.Message != b.Message {
		t.Fatalf("one by one it is %+v\nat once it is %+v", a, b)
	}
}

// TestEarlyAnswers: an answer that comes before its window has ended is not counted, nor one to
// another question.
func TestEarlyAnswers(t *testing.T) {
	l := newLab(proportion())
	next := l.Next(l.metric(), l.release)
	bad := verdict.Measured{Key: next.Key, Update: answer("90/100"), Stable: answer("0/100")}
	l.Follow([]verdict.Measured{bad}, l.release)
	if l.metric().Count != 0 {
		t.Fatal("an answer was counted before its window ended")
	}
	l.Now = next.At
	for _, change := range []func(*verdict.Key){
		func(k *verdict.Key) { k.Commit = "other" }, func(k *verdict.Key) { k.Revision = "other" }, func(k *verdict.Key) { k.Began++ },
		func(k *verdict.Key) { k.Step++ }, func(k *verdict.Key) { k.Round++ }, func(k *verdict.Key) { k.SpecHash = "other" },
		func(k *verdict.Key) { k.N++ },
	} {
		other := bad
		change(&other.Key)
		if l.Follow([]verdict.Measured{other}, l.release); l.metric().Count != 0 {
			t.Fatalf("the answer to %+v was counted for %+v", other.Key, next.Key)
		}
		if other.Hash() == bad.Hash() {
			t.Fatalf("%+v and %+v have one hash", other.Key, next.Key)
		}
	}
}

// TestBackground: a background metric is judged by its last five windows.
func TestBackground(t *testing.T) {
	l := newLab(proportion())
	l.Step, l.Plan.Background = nil, []string{"errors"}
	l.Status.BackgroundStartTime = &metav1.Time{Time: began}
	l.Arrange()
	for range 50 {
		l.give("0/100; 0/100")
	}
	if got := l.metric(); got.Verdict != v1alpha1.VerdictPass || got.Update != "0/500" || len(got.Measurements) != 5 {
		t.Fatalf("after 50 windows it is %s with %s of %d", got.Verdict, got.Update, len(got.Measurements))
	}
	l.give("NoData")
	if l.metric().Verdict != v1alpha1.VerdictUnknown || l.metric().UnknownTime == nil {
		t.Fatal("the last window is empty, and it passes")
	}
	l.give("20/100; 0/100")
	if got := l.metric(); got.Verdict != v1alpha1.VerdictFail {
		t.Fatalf("20 of the last 400 failed, and it is %s: %s", got.Verdict, got.Message)
	}
	if !strings.HasSuffix(l.Status.Message, " (background)") {
		t.Errorf("the message does not tell it from a metric of the step: %s", l.Status.Message)
	}
	if l.Next(l.metric(), l.release) != nil {
		t.Fatal("it goes on measuring after it has failed")
	}
}

// TestQuestions: placeholders stand for the revision of each side.
func TestQuestions(t *testing.T) {
	m := proportion()
	m.Prometheus.Query = `sum(increase(e{pod=~"$(pods)",rs="$(replicaset)",hash="$(revision)",` +
		`ns="$(namespace)",c="$(commit)",s="$(step)"}[$(window)]))`
	l := newLab(m)
	l.release.Update, l.release.Commit = "my.web-new", "abc"
	q := l.Next(l.metric(), l.release)
	want := `sum(increase(e{pod=~"my[.]web-new-[a-z0-9]{5}",rs="my.web-new",hash="new",ns="shop",c="abc",s="0"}[60s]))`
	if q.Update.Prometheus.Query != want {
		t.Errorf("update: %s\nwant:   %s", q.Update.Prometheus.Query, want)
	}
	if got := q.Stable.Prometheus.Query; !strings.Contains(got, `rs="web-old",hash="old"`) {
		t.Errorf("stable: %s", got)
	}
	l.release.Stable = ""
	if l.Next(l.metric(), l.release).Stable != nil {
		t.Error("a stable revision without a ReplicaSet is asked for")
	}
	l.Plan.Metrics[0].Scope = v1alpha1.ScopeDeployment
	l.release.Stable = "web-old"
	l.Arrange()
	if l.Next(l.metric(), l.release).Stable != nil {
		t.Error("a query about the Deployment is asked twice")
	}
}

// TestSpecHash: limits have no part in it, and all that is asked has.
func TestSpecHash(t *testing.T) {
	m := proportion()
	hash := measure.SpecHash(&m)
	for name, edit := range map[string]func(*v1alpha1.Metric){
		"max": func(m *v1alpha1.Metric) { m.Max = decimal("3%") }, "minimum": func(m *v1alpha1.Metric) { m.Minimum = 7 },
		"compare":      func(m *v1alpha1.Metric) { m.Compare = &v1alpha1.Comparison{By: "1"} },
		"failureLimit": func(m *v1alpha1.Metric) { m.FailureLimit = 2 },
		"defaults":     func(m *v1alpha1.Metric) { m.Scope, m.NoData, m.Delay = "Revision", "Unknown", seconds(30) },
	} {
		if e := *m.DeepCopy(); measure.SpecHash(func() *v1alpha1.Metric { edit(&e); return &e }()) != hash {
			t.Errorf("an edit of %s measures again", name)
		}
	}
	for name, edit := range map[string]func(*v1alpha1.Metric){
		"query": func(m *v1alpha1.Metric) { m.Prometheus.Query = "x" }, "total": func(m *v1alpha1.Metric) { m.Prometheus.Total = "x" },
		"provider": func(m *v1alpha1.Metric) { m.Prometheus.Provider = "x" },
		"interval": func(m *v1alpha1.Metric) { m.Interval = seconds(70) },
		"warmUp":   func(m *v1alpha1.Metric) { m.WarmUp = seconds(1) }, "noData": func(m *v1alpha1.Metric) { m.NoData = "Zero" },
		"scope": func(m *v1alpha1.Metric) { m.Scope = "Deployment" },
	} {
		if e := *m.DeepCopy(); measure.SpecHash(func() *v1alpha1.Metric { edit(&e); return &e }()) == hash {
			t.Errorf("an edit of %s does not measure again", name)
		}
	}
}
