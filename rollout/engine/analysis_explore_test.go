package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/engine/verdict"
)

// measuredWorld is what is measured in a world. It has the time, and the answers that a process
// has in its memory. The log is the oracle's own account of those that a status was written of.
type measuredWorld struct {
	now      time.Duration
	answers  []engine.Measured
	override bool // of all metrics, for the present step
	goesWell bool // each measurement is answered well from now on, and overridden
	log      []measuredAnswer
	unknowns int // answers without a value that may come yet
	expired  bool
}

// measuredAnswer is an answer that a status was written of, by what the question named.
type measuredAnswer struct {
	revision, commit, metric string
	step, round, n           int32
	value                    string
}

const (
	valueGood, valueBad, valueUnknown = "1", "9", ""
	windowLength                      = 10 * time.Second
	expiry                            = 1000 * time.Second
)

// withAnalysis gives steps an analysis of two windows of one metric, with the limit 5.
func withAnalysis(w *world, a v1alpha1.Analysis, steps ...int) *world {
	limit, zero, deadline := v1alpha1.Decimal("5"), metav1.Duration{}, int32(864000)
	a.Metrics = []v1alpha1.Metric{{
		Name: "errors", Prometheus: &v1alpha1.PrometheusMetric{Provider: "p", Query: `errors{pod=~"$(pods)"}`}, Max: &limit,
		Interval: &metav1.Duration{Duration: windowLength}, Delay: &zero,
	}}
	seconds := int32(expiry / time.Second / 2)
	a.UnknownDeadlineSeconds = &seconds
	w.spec.Strategy.Analysis, w.spec.Strategy.ProgressDeadlineSeconds = &a, &deadline
	for _, i := range steps {
		w.spec.Strategy.Steps[i].Analysis = &v1alpha1.StepAnalysis{Duration: metav1.Duration{Duration: 2 * windowLength}}
	}
	return w
}

func (m *measuredWorld) analysed(w *world) bool { return w.spec.Strategy.Analysis != nil }

// observe adds what the world knows of measurements.
func (m *measuredWorld) observe(w *world, o *engine.Observed) {
	if !m.analysed(w) {
		return
	}
	o.Measured = m.answers
	if m.override || m.goesWell {
		o.Release.Spec.Approval = &v1alpha1.Approval{
			Revision: hashes[w.brought], Commit: w.commit(), Step: w.status.CurrentStepIndex,
			Override: &v1alpha1.Override{Metrics: []string{"errors"}, Reason: "known"},
		}
	}
}

// key tells states apart.
func (m *measuredWorld) key(w *world) string {
	if !m.analysed(w) {
		return ""
	}
	since := func(t *metav1.Time) time.Duration {
		if t == nil {
			return -1
		}
		return min(epoch.Add(m.now).Sub(t.Time), 3*windowLength) // more makes no difference
	}
	var b strings.Builder
	fmt.Fprint(&b, "|", len(m.answers), m.override, m.unknowns, m.expired)
	for _, a := range m.answers {
		fmt.Fprint(&b, a.Step, a.Update)
	}
	if s := w.status.Analysis; s != nil {
		fmt.Fprint(&b, s.Step, since(s.StartTime), since(s.BackgroundStartTime), s.Verdict, s.Reason)
		for _, x := range s.Metrics {
			next, late := x.Next, x.UnknownTime != nil && epoch.Add(m.now).Sub(x.UnknownTime.Time) >= expiry/2
			if x.Background { // its windows go on for ever, and all are alike
				next, x.Count = 0, min(x.Count, 1)
			}
			fmt.Fprint(&b, x.Name, x.Background, x.Verdict, next, x.Count, x.UpdateValues, x.UnknownTime != nil, late)
		}
	}
	return b.String()
}

// moves are the answers that may come for a question: good, bad or none. Time passes until the
// question may be asked. Then more passes than a verdict may stay Unknown.
func (m *measuredWorld) moves(w *world, d engine.Decision) []move {
	if !m.analysed(w) || len(m.answers) > 0 {
		return nil
	}
	var ms []move
	for _, q := range d.Measure {
		for _, value := range []string{valueGood, valueBad, valueUnknown} {
			if value == valueUnknown && m.unknowns == 0 {
				continue
			}
			ms = append(ms, move{
				name: fmt.Sprintf("answer %q to %s", value, q.Key), do: func(_ *testing.T, w *world) { w.measured.answer(q, value) },
			})
		}
	}
	if !m.expired {
		ms = append(ms, move{name: "time passes", do: func(_ *testing.T, w *world) { w.measured.now += expiry; w.measured.expired = true }})
	}
	return ms
}

func (m *measuredWorld) answer(q engine.Measurement, value string) {
	m.now = max(m.now, q.At.Sub(epoch))
	a := &verdict.Answer{Values: []string{value}}
	if value == valueUnknown {
		m.unknowns--
		a = &verdict.Answer{Unknown: verdict.NoData}
	}
	stable := &verdict.Answer{Values: []string{valueGood}}
	m.answers = append(slices.Clone(m.answers), engine.Measured{Key: q.Key, Update: a, Stable: stable})
}

// goWell answers what is asked, and lets time pass.
func (m *measuredWorld) goWell(w *world, d engine.Decision) {
	if !m.analysed(w) {
		return
	}
	m.answers = nil
	for _, q := range d.Measure {
		m.answer(q, valueGood)
	}
	if d.Wait > 0 && w.status.CurrentStepState == v1alpha1.StepBlocking {
		m.now += 2 * windowLength
	}
}

// override of the current step is a commit.
func override() change {
	return change{"override", func(w *world) bool { return !w.measured.override }, func(w *world) { w.measured.override = true }}
}

// wrote takes the answers for stored, and judges what the new status opens. It goes by the
// answers that were given, and never by what the status says of them.
func (m *measuredWorld) wrote(t *testing.T, before, w *world) {
	t.Helper()
	if !m.analysed(w) {
		return
	}
	overridden := before.measured.override || m.override || m.goesWell
	m.store(w, before)
	s, was := &w.status, &before.status
	plan := w.spec.Strategy.Analysis
	_, bad := m.evidence(was)
	if s.FailedRevision != "" && was.FailedRevision == "" {
		if plan.Mode == v1alpha1.AnalysisObserve || bad == 0 && !m.unknownMay(plan, v1alpha1.UnknownRollback) {
			t.Fatalf("I13: rolled back with %d bad answers\npath %s\nfrom %s\nto   %s", bad, w.path, before, w)
		}
	}
	if !overridden {
		m.checkEnd(t, before, w)
	}
	if !overridden && gateOpened(w, was) {
		m.checkGate(t, before, w)
	}
}

// checkGate judges a gate that has opened, with no override.
func (m *measuredWorld) checkGate(t *testing.T, before, w *world) {
	t.Helper()
	plan, step := w.spec.Strategy.Analysis, before.status.CurrentStepIndex
	good, bad := m.evidence(&before.status)
	passes := bad == 0 && (good >= 2 || m.unknownMay(plan, v1alpha1.UnknownPass))
	switch {
	case w.spec.Strategy.Steps[step].Analysis != nil && !passes:
		t.Fatalf("I11: the gate of step %d opened with %d good and %d bad answers\npath %s\nfrom %s\nto   %s", step, good, bad, w.path, before, w)
	case len(plan.Background) > 0 && !m.watched(&w.status, plan):
		t.Fatalf("I13: the gate of step %d opened, and the background had no good answer\npath %s\nfrom %s\nto   %s", step, w.path, before, w)
	}
}

// unknownMay reports whether a verdict that stays Unknown may have this consequence by now.
func (m *measuredWorld) unknownMay(plan *v1alpha1.Analysis, do v1alpha1.UnknownPolicy) bool {
	return plan.OnUnknown == do && m.expired
}

// watched reports whether the background had a good answer about a release, or needs none.
func (m *measuredWorld) watched(s *v1alpha1.BatchReleaseStatus, plan *v1alpha1.Analysis) bool {
	return m.unknownMay(plan, v1alpha1.UnknownPass) || slices.ContainsFunc(m.log, func(a measuredAnswer) bool {
		return a.step < 0 && a.value == valueGood && a.revision == s.UpdateRevision && a.commit == s.UpdateCommit
	})
}

// gateOpened reports whether a gate has opened since that depends on what is measured.
func gateOpened(w *world, was *v1alpha1.BatchReleaseStatus) bool {
	s, i := &w.status, int(was.CurrentStepIndex)
	same := s.UpdateCommit == was.UpdateCommit && s.UpdateRevision == was.UpdateRevision && !was.RollingBack && !s.RollingBack
	if !same || was.BeganFull || w.spec.Strategy.Analysis.Mode == v1alpha1.AnalysisObserve {
		return false
	}
	last := i == len(w.spec.Strategy.Steps)-1
	return int(s.CurrentStepIndex) > i || last && s.Phase == v1alpha1.PhaseFinalizing && was.Phase != s.Phase
}

// store notes the answers that the status has now.
func (m *measuredWorld) store(w, before *world) {
	for _, a := range m.answers {
		value := valueUnknown
		if a.Update.Unknown == "" {
			value = a.Update.Values[0]
		}
		m.log = append(slices.Clone(m.log), measuredAnswer{a.Revision, a.Commit, a.Metric, a.Step, a.Round, a.N, value})
	}
	m.answers, m.override = nil, m.override && w.status.CurrentStepIndex == before.status.CurrentStepIndex
}

// checkEnd fails if a release has ended though the background had a bad answer about it.
func (m *measuredWorld) checkEnd(t *testing.T, before, w *world) {
	t.Helper()
	s := &w.status
	observes := w.spec.Strategy.Analysis.Mode == v1alpha1.AnalysisObserve
	if s.Phase != v1alpha1.PhaseFinalizing || before.status.Phase == s.Phase || s.RollingBack || observes {
		return
	}
	if slices.ContainsFunc(m.log, func(a measuredAnswer) bool {
		return a.step < 0 && a.value == valueBad && a.revision == s.UpdateRevision && a.commit == s.UpdateCommit
	}) {
		t.Fatalf("the release ends though a background metric fails\npath %s\nfrom %s\nto   %s", w.path, before, w)
	}
}

// evidence counts the good and the bad answers about the step that a status is at.
func (m *measuredWorld) evidence(s *v1alpha1.BatchReleaseStatus) (good, bad int) {
	seen := map[measuredAnswer]bool{}
	round := int32(0)
	of := func(a measuredAnswer) bool {
		return a.revision == s.UpdateRevision && a.commit == s.UpdateCommit && (a.step == s.CurrentStepIndex || a.step < 0)
	}
	for _, a := range m.log {
		if of(a) && a.step >= 0 {
			round = max(round, a.round)
		}
	}
	for _, a := range m.log {
		switch {
		case !of(a) || seen[a]:
		case a.value == valueBad: // in any round: no Fail is forgotten
			bad++
		case a.step >= 0 && a.round != round:
		case a.value == valueGood && a.step >= 0:
			good++
		}
		seen[a] = true
	}
	return good, bad
}

// TestExploreAnalysis visits all interleavings of small releases whose gates measure. Each
// question is answered well, badly or not at all, at any moment, and a crash forgets answers.
// The oracle knows which answers a status was written of. Gates open by these alone (I11), and
// nothing is rolled back for an answer that says nothing (I13).
func TestExploreAnalysis(t *testing.T) {
	t.Parallel()
	policies := map[string]v1alpha1.Analysis{
		"hold":             {},
		"roll back":        {OnFailure: v1alpha1.FailureRollback},
		"unknown back":     {OnFailure: v1alpha1.FailureRollback, OnUnknown: v1alpha1.UnknownRollback},
		"unknown passes":   {OnUnknown: v1alpha1.UnknownPass},
		"observe":          {Mode: v1alpha1.AnalysisObserve, OnFailure: v1alpha1.FailureRollback, OnUnknown: v1alpha1.UnknownRollback},
		"background":       {Background: []string{"errors"}},
		"background, back": {OnFailure: v1alpha1.FailureRollback, Background: []string{"errors"}},
		"background alone": {Background: []string{"errors"}}, // at the last step
	}
	for name, a := range policies {
		for n := int32(1); n <= 2; n++ {
			for _, bounds := range [][2]int32{{1, 0}, {0, 1}} {
				small := n == 1 && bounds[0] == 1 || name == "roll back" && (n == 1 || bounds[0] == 0)
				if !*full && (!small || name == "background") {
					continue
				}
				t.Run(fmt.Sprintf("%s N=%d bounds %v", name, n, bounds), func(t *testing.T) {
					t.Parallel()
					measured := []int{0, 1}
					if name == "background alone" {
						measured = measured[:1]
					}
					start := withAnalysis(newWorld(n, bounds[0], bounds[1], "1", "100%"), a, measured...)
					start.brought, start.measured.unknowns = 1, 1
					e := &exploration{t: t, most: 1, seen: map[string]bool{}, ending: map[string]bool{},
						changes: []change{bring(0), approve(0), override()}}
					if *full || name == "hold" {
						e.changes = append(e.changes, bring(2), scaleTo(0))
					}
					e.from(start)
					t.Logf("%d states", len(e.seen))
				})
			}
		}
	}
}
