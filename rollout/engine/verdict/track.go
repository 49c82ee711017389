package verdict

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/measure"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Track follows the metrics of a release: those of its step, and those in the background.
type Track struct {
	Plan *v1alpha1.Analysis
	// Step is the analysis of the step; nil without one.
	Step *v1alpha1.StepAnalysis
	// Last: it is the last step. The stable revision may have no pods, or too few, and then its
	// values of earlier steps count.
	Last bool
	// Status is what is known. Follow changes it.
	Status *v1alpha1.AnalysisStatus
	// Overridden names the metrics that do not count at the step.
	Overridden []string
	Now        time.Time
}

// Metric returns the metric of a name; nil without one.
func (t *Track) Metric(name string) *v1alpha1.Metric {
	for i := range t.Plan.Metrics {
		if t.Plan.Metrics[i].Name == name {
			return &t.Plan.Metrics[i]
		}
	}
	return nil
}

// StepMetrics names the metrics of the step.
func (t *Track) StepMetrics() []string {
	switch {
	case t.Step == nil:
		return nil
	case len(t.Step.Metrics) > 0:
		return t.Step.Metrics
	}
	var all []string
	for _, m := range t.Plan.Metrics {
		all = append(all, m.Name)
	}
	return all
}

// Arrange has one status for each metric that is measured now, in the order of the plan. A
// metric whose question has changed starts again. Others keep their values.
func (t *Track) Arrange() {
	var arranged []v1alpha1.MetricStatus
	arrange := func(names []string, background bool, start *metav1.Time) {
		if start == nil {
			return
		}
		for _, name := range names {
			m := t.Metric(name)
			if m == nil {
				continue
			}
			st := v1alpha1.MetricStatus{Name: name, Background: background, SpecHash: measure.SpecHash(m), Next: 1}
			if i := slices.IndexFunc(t.Status.Metrics, func(old v1alpha1.MetricStatus) bool {
				return old.Name == name && old.Background == background && old.SpecHash == st.SpecHash
			}); i >= 0 {
				st = t.Status.Metrics[i]
			}
			st.Next = max(st.Next, 1)
			arranged = append(arranged, st)
		}
	}
	if t.Step != nil {
		arrange(t.StepMetrics(), false, t.Status.StartTime)
	}
	arrange(t.Plan.Background, true, t.Status.BackgroundStartTime)
	t.Status.Metrics = arranged
}

// start is when the windows of a metric begin.
func (t *Track) start(st *v1alpha1.MetricStatus) time.Time {
	if st.Background {
		return t.Status.BackgroundStartTime.Time
	}
	return t.Status.StartTime.Time
}

func (t *Track) planned(m *v1alpha1.Metric, st *v1alpha1.MetricStatus) int32 {
	if st.Background {
		return 1
	}
	return measure.Planned(m, t.Step.Duration.Duration)
}

// due is when the verdict of a metric is due.
func (t *Track) due(m *v1alpha1.Metric, st *v1alpha1.MetricStatus) time.Time {
	if st.Background {
		_, _, at := measure.Window(m, t.start(st), 1)
		return at
	}
	return measure.Due(m, t.start(st), t.Step.Duration.Duration)
}

// measures reports whether a metric needs another measurement. One of a step does not once it
// has a verdict, so that the values under it stay. Background metrics go on.
func measures(st *v1alpha1.MetricStatus) bool {
	return st.Verdict != v1alpha1.VerdictFail && (st.Background || st.Verdict != v1alpha1.VerdictPass)
}

// lateAfter is how long after it is due a verdict may take without being late.
const lateAfter = 30 * time.Second

// SoFar says until when is measured at the step, and what was.
func (t *Track) SoFar() string {
	until := t.until()
	if until.IsZero() {
		return " is being measured"
	}
	text := " is being measured until "
	if t.Now.Sub(until) >= lateAfter {
		text = " has no verdict yet, and should have been measured by "
	}
	text += until.UTC().Format(time.TimeOnly) + " UTC"
	if t.Status.Message != "" {
		text += ": " + t.Status.Message
	}
	return text
}

// until is when all verdicts of the step are due; zero if nothing is measured at it.
func (t *Track) until() time.Time {
	if t.Step == nil || t.Status == nil || t.Status.StartTime == nil {
		return time.Time{}
	}
	until := t.Status.StartTime.Add(t.Step.Duration.Duration)
	for i := range t.Status.Metrics {
		st := &t.Status.Metrics[i]
		if m := t.Metric(st.Name); m != nil && !st.Background {
			if due := t.due(m, st); due.After(until) {
				until = due
			}
		}
	}
	return until
}

// Next returns the measurement of a metric whose answer is missing. A background metric asks
// for no more than the windows by which it is judged: older ones would be forgotten at once.
func (t *Track) Next(st *v1alpha1.MetricStatus, of Release) *Measurement {
	m := t.Metric(st.Name)
	if m == nil || !measures(st) || of.Update == "" {
		return nil
	}
	n := st.Next
	if st.Background {
		last := int32((t.Now.Sub(t.start(st)) - measure.WarmUp(m) - measure.Delay(m)) / measure.Interval(m))
		n = max(n, last-measure.KeptWindows+1)
	}
	key := of.Key
	key.Metric, key.SpecHash, key.N, key.Step, key.Round = m.Name, st.SpecHash, n, t.Status.Step, t.Status.Round
	if st.Background {
		key.Step, key.Round = -1, 0
	}
	a := &Measurement{
		Key: key, Account: of.Account, Condition: m.Condition, ZeroIfEmpty: m.NoData == v1alpha1.NoDataZero,
		Values: of.values(of.Update, of.Revision, t.Status.Step, measure.Interval(m)), Recorded: t.baseline(st) != nil,
	}
	a.From, a.To, a.At = measure.Window(m, t.start(st), n)
	a.Update = newQuestion(m, a.Values)
	if !measure.Timed(m) && m.Scope != v1alpha1.ScopeDeployment && of.Stable != "" {
		a.Stable = newQuestion(m, of.values(of.Stable, of.StableRevision, t.Status.Step, measure.Interval(m)))
	}
	return a
}

// Release is what measurements need to know of the release.
type Release struct {
	// Key has the fields that name the release.
	Key
	Account, Deployment string
	// Update and Stable are the names of the ReplicaSets; empty without one.
	Update, Stable, StableRevision string
}

func (r *Release) values(replicaSet, revision string, step int32, window time.Duration) map[string]string {
	return map[string]string{
		"namespace": r.Namespace, "deployment": r.Deployment, "revision": revision, "replicaset": replicaSet,
		"pods": measure.Pods(replicaSet), "commit": r.Commit, "step": fmt.Sprint(step), "window": measure.WindowText(window),
	}
}

// Follow records the answers that have come, and judges each metric. Each answer is judged
// before the next one is recorded. So windows that are answered together give the verdict that
// they would have given one by one.
func (t *Track) Follow(answers []Measured, of Release) {
	for i := range t.Status.Metrics {
		st := &t.Status.Metrics[i]
		t.judge(st)
		for {
			next := t.Next(st, of)
			if next == nil {
				break
			}
			at := slices.IndexFunc(answers, func(a Measured) bool { return a.Key == next.Key })
			if at < 0 || t.Now.Before(next.At) {
				break
			}
			Record(t.Metric(st.Name), st, next, &answers[at])
			t.judge(st)
			if answers[at].Retrying {
				break
			}
		}
		t.timeUnknown(st)
	}
	t.conclude()
}

// judge sets the verdict of a metric.
func (t *Track) judge(st *v1alpha1.MetricStatus) {
	m := t.Metric(st.Name)
	j := Judge(Case{Metric: m, Status: st, Planned: t.planned(m, st), Earlier: t.baseline(st)})
	st.Verdict, st.Reason, st.Message, st.P, st.Recorded = j.Verdict, j.Reason, j.Message, j.P, j.Recorded
}

// baseline returns the record of a metric whose stable values count at the step; nil without
// one. Values of another question do not count.
func (t *Track) baseline(st *v1alpha1.MetricStatus) *v1alpha1.MetricRecord {
	if !t.Last || st.Background {
		return nil
	}
	r := Earlier(t.Status, st.Name)
	if r == nil || r.SpecHash != st.SpecHash || r.StableTotal == "" && len(r.StableValues) == 0 {
		return nil
	}
	return r
}

// Earlier returns the record of a metric of earlier steps; nil without one.
func Earlier(s *v1alpha1.AnalysisStatus, name string) *v1alpha1.MetricRecord {
	for i := range s.Records {
		if r := &s.Records[i]; r.Name == name && !r.Background {
			return r
		}
	}
	return nil
}

// timeUnknown has the clock of unknownDeadlineSeconds run from when the verdict was due.
func (t *Track) timeUnknown(st *v1alpha1.MetricStatus) {
	switch {
	case st.Verdict != v1alpha1.VerdictUnknown || t.Now.Before(t.due(t.Metric(st.Name), st)):
		st.UnknownTime = nil
	case st.UnknownTime == nil:
		st.UnknownTime = &metav1.Time{Time: t.Now}
	}
}

// UnknownDeadline is how long a verdict may stay Unknown.
func UnknownDeadline(a *v1alpha1.Analysis) time.Duration {
	seconds := v1alpha1.DefaultUnknownDeadlineSeconds
	if a.UnknownDeadlineSeconds != nil {
		seconds = *a.UnknownDeadlineSeconds
	}
	return time.Duration(seconds) * time.Second
}

// expired reports whether a metric has been Unknown for too long.
func (t *Track) expired(st *v1alpha1.MetricStatus) bool {
	return st.UnknownTime != nil && t.Now.Sub(st.UnknownTime.Time) >= UnknownDeadline(t.Plan)
}

// Reasons of the verdict of a step.
const (
	// Passed: all metrics pass, or do not count.
	Passed = "Passed"
	// MetricsFail: a metric fails.
	MetricsFail = "MetricsFail"
	// DeadlineExceeded: a verdict has stayed Unknown for unknownDeadlineSeconds.
	DeadlineExceeded = "UnknownDeadlineExceeded"
)

// conclude sums up the verdicts. Pass needs all metrics, and that the duration of the step's
// analysis has passed. Without one, those in the background decide.
func (t *Track) conclude() {
	s := t.Status
	var failing, expired, open []string
	for i := range s.Metrics {
		st := &s.Metrics[i]
		switch {
		case slices.Contains(t.Overridden, st.Name) || st.Verdict == v1alpha1.VerdictPass:
		case st.Verdict == v1alpha1.VerdictFail:
			failing = append(failing, said(st))
		case t.expired(st) && t.Plan.OnUnknown == v1alpha1.UnknownPass:
		case t.expired(st):
			expired = append(expired, said(st))
		default:
			open = append(open, said(st))
		}
	}
	open = append(open, t.unmeasured()...)
	switch {
	case len(failing) > 0:
		s.Verdict, s.Reason, s.Message = v1alpha1.VerdictFail, MetricsFail, join(failing)
	case len(expired) > 0:
		s.Verdict, s.Reason, s.Message = v1alpha1.VerdictUnknown, DeadlineExceeded, join(expired)
	case len(open) > 0 || t.isEarly():
		s.Verdict, s.Reason, s.Message = v1alpha1.VerdictUnknown, Measuring, join(open)
	default:
		s.Verdict, s.Reason, s.Message = v1alpha1.VerdictPass, Passed, join(t.messages())
	}
}

// isEarly reports whether the duration of the step's analysis has not passed, or nothing is measured.
func (t *Track) isEarly() bool {
	if t.Step == nil {
		return len(t.Plan.Background) == 0
	}
	return t.Status.StartTime == nil || t.Now.Before(t.Status.StartTime.Add(t.Step.Duration.Duration))
}

// unmeasured says which metrics have no status. Without one, and without any metric, nothing
// has passed.
func (t *Track) unmeasured() (list []string) {
	lacks := func(names []string, background bool) {
		for _, name := range names {
			if !slices.Contains(t.Overridden, name) && !slices.ContainsFunc(t.Status.Metrics, func(st v1alpha1.MetricStatus) bool {
				return st.Name == name && st.Background == background
			}) {
				list = append(list, name+noValue)
			}
		}
	}
	lacks(t.StepMetrics(), false)
	lacks(t.Plan.Background, true)
	if t.Step != nil && len(t.StepMetrics()) == 0 {
		list = append(list, "the step has no metric")
	}
	return list
}

// messages are those of a verdict that passes. The first ones are those of metrics that do not, and
// say why that is no obstacle.
func (t *Track) messages() []string {
	var others, pass []string
	for i := range t.Status.Metrics {
		st := &t.Status.Metrics[i]
		switch {
		case st.Verdict == v1alpha1.VerdictPass:
			pass = append(pass, said(st))
		case slices.Contains(t.Overridden, st.Name):
			others = append(others, said(st)+" (overridden)")
		default:
			others = append(others, said(st)+" (unknown for too long, and onUnknown is Pass)")
		}
	}
	return append(others, pass...)
}

// said is the message of a metric. One in the background may be a metric of the step, too.
func said(st *v1alpha1.MetricStatus) string {
	if st.Background {
		return st.Message + " (background)"
	}
	return st.Message
}

// join names the first three, and how many more there are.
func join(messages []string) string {
	text := strings.Join(messages[:min(len(messages), 3)], "; ")
	if n := len(messages) - 3; n > 0 {
		text += fmt.Sprintf("; and %d more", n)
	}
	return text
}

// Wake returns the next time at which a verdict may change by itself; zero without one.
func (t *Track) Wake() time.Time {
	var wake time.Time
	sooner := func(at time.Time) {
		if at.After(t.Now) && (wake.IsZero() || at.Before(wake)) {
			wake = at
		}
	}
	if t.Step != nil && t.Status.StartTime != nil {
		sooner(t.Status.StartTime.Add(t.Step.Duration.Duration))
	}
	for i := range t.Status.Metrics {
		st := &t.Status.Metrics[i]
		if st.Verdict != v1alpha1.VerdictUnknown {
			continue
		}
		sooner(t.due(t.Metric(st.Name), st))
		if st.UnknownTime != nil {
			sooner(st.UnknownTime.Add(UnknownDeadline(t.Plan)))
		}
	}
	return wake
}

// Begin begins the windows of the step, from when its pods were available, and those of the
// background with the first step. It reports whether any have begun.
func (t *Track) Begin(available time.Time) bool {
	began := false
	if t.Status.BackgroundStartTime == nil && len(t.Plan.Background) > 0 {
		t.Status.BackgroundStartTime, began = wholeSecond(t.Now), true
	}
	if t.Step != nil && t.Status.StartTime == nil {
		t.Status.StartTime, began = wholeSecond(available), true
		t.Status.Round++
	}
	return began
}

// wholeSecond returns a time as the API server keeps it. A window that is counted from a fraction
// of a second would be another one after a restart.
func wholeSecond(t time.Time) *metav1.Time { return &metav1.Time{Time: t.Truncate(time.Second)} }
