package view

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/measure"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/verdict"
)

// Analysis is what is measured of a release under way.
type Analysis struct {
	// Step is the step that the verdict is about.
	Step    int32            `json:"step"`
	Verdict v1alpha1.Verdict `json:"verdict,omitempty"`
	Reason  string           `json:"reason,omitempty"`
	Message string           `json:"message,omitempty"`
	Tone    Tone             `json:"tone"`
	// Observes is true if no gate depends on the verdict.
	Observes bool     `json:"observes,omitempty"`
	Metrics  []Metric `json:"metrics"`
	// Earlier are the last verdicts at earlier steps.
	Earlier []Evidence `json:"earlier,omitempty"`
}

// Kind is what the values of a metric are.
type Kind string

// The kinds.
const (
	KindProportion Kind = "proportion" // a part of a total
	KindValue      Kind = "value"      // a number
	KindCheck      Kind = "check"      // 1 for a measurement that passes, and 0 for one that fails
)

// Metric is one metric, with the values of both revisions.
type Metric struct {
	Name       string           `json:"name"`
	Background bool             `json:"background,omitempty"`
	Verdict    v1alpha1.Verdict `json:"verdict,omitempty"`
	Reason     string           `json:"reason,omitempty"`
	Message    string           `json:"message,omitempty"`
	Tone       Tone             `json:"tone"`
	Kind       Kind             `json:"kind"`
	// Update and Stable are the values over all windows, for people; empty: there is none.
	Update string `json:"update,omitempty"`
	Stable string `json:"stable,omitempty"`
	P      string `json:"p,omitempty"`
	// Recorded is true if the stable revision's values are those of earlier steps.
	Recorded bool   `json:"recorded,omitempty"`
	Max      *Limit `json:"max,omitempty"`
	Min      *Limit `json:"min,omitempty"`
	// Compare says which difference from the stable revision is harm.
	Compare string `json:"compare,omitempty"`
	// Planned is the number of windows that the step needs; 0: there is no such number.
	Planned int32 `json:"planned,omitempty"`
	// Count is the number of windows with a value, and Unknown of those without one.
	Count   int32 `json:"count"`
	Unknown int32 `json:"unknown,omitempty"`
	// Pending is why the next window has no answer yet.
	Pending string `json:"pending,omitempty"`
	// Windows are the last ones, oldest first.
	Windows []Window `json:"windows"`
}

// Limit is a limit of a metric, as the plan has it and as a number.
type Limit struct {
	Text  string  `json:"text"`
	Value float64 `json:"value"`
}

// Window is one measurement of a metric.
type Window struct {
	N    int32        `json:"n"`
	From *metav1.Time `json:"from,omitempty"`
	To   metav1.Time  `json:"to"`
	// Update and Stable are the values; nil: there is none. A proportion is between 0 and 1.
	Update *float64 `json:"update,omitempty"`
	Stable *float64 `json:"stable,omitempty"`
	// UpdateText and StableText are the same for people.
	UpdateText string `json:"updateText,omitempty"`
	StableText string `json:"stableText,omitempty"`
	// Reason and Message are why the window is Unknown.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Evidence is the last verdict of a metric at a step, with the values of both revisions.
type Evidence struct {
	Name       string           `json:"name"`
	Background bool             `json:"background,omitempty"`
	Step       int32            `json:"step"`
	Verdict    v1alpha1.Verdict `json:"verdict"`
	Reason     string           `json:"reason,omitempty"`
	Message    string           `json:"message,omitempty"`
	Update     string           `json:"update,omitempty"`
	Stable     string           `json:"stable,omitempty"`
	P          string           `json:"p,omitempty"`
}

// Analysis returns what is measured; nil: nothing is.
func (s *Facts) Analysis() *Analysis {
	at := s.Release.Status.Analysis
	if at == nil {
		return nil
	}
	made := &Analysis{
		Step: at.Step, Verdict: at.Verdict, Reason: at.Reason, Message: at.Message, Tone: verdictTone(at.Verdict, at.Reason),
		Metrics: []Metric{}, Earlier: EvidenceOf(at.Records),
	}
	strategy := &s.Release.Spec.Strategy
	if a := strategy.Analysis; a != nil {
		made.Observes = a.Mode == v1alpha1.AnalysisObserve
	}
	for i := range at.Metrics {
		made.Metrics = append(made.Metrics, newMetric(&at.Metrics[i], at.Step, strategy))
	}
	return made
}

// newMetric returns a metric. The plan may have another one of that name by now, or none.
func newMetric(st *v1alpha1.MetricStatus, step int32, strategy *v1alpha1.BatchStrategy) Metric {
	m := Metric{
		Name: st.Name, Background: st.Background, Verdict: st.Verdict, Reason: st.Reason, Message: st.Message,
		Tone: verdictTone(st.Verdict, st.Reason), Kind: kindOf(st), P: st.P, Recorded: st.Recorded,
		Count: st.Count, Unknown: st.Unknown, Windows: []Window{},
	}
	if st.Pending != nil {
		m.Pending = st.Pending.Reason
		if st.Pending.Message != "" {
			m.Pending += ": " + st.Pending.Message
		}
	}
	if a := strategy.Analysis; a != nil {
		if i := slices.IndexFunc(a.Metrics, func(o v1alpha1.Metric) bool { return o.Name == st.Name }); i >= 0 {
			m.addPlan(&a.Metrics[i], analysisOf(strategy, step))
		}
	}
	m.Update, m.Stable = summary(m.Kind, st.Update, st.UpdateValues), summary(m.Kind, st.Stable, st.StableValues)
	for _, w := range st.Measurements {
		one := Window{N: w.N, From: w.From, To: w.To, Reason: w.Reason, Message: w.Message}
		if w.Reason == "" {
			one.Update, one.UpdateText = valueOf(m.Kind, w.Update), textOf(m.Kind, w.Update)
			one.Stable, one.StableText = valueOf(m.Kind, w.Stable), textOf(m.Kind, w.Stable)
		}
		m.Windows = append(m.Windows, one)
	}
	return m
}

// analysisOf returns the analysis of a step; nil: there is none.
func analysisOf(strategy *v1alpha1.BatchStrategy, step int32) *v1alpha1.StepAnalysis {
	if step < 0 || int(step) >= len(strategy.Steps) {
		return nil
	}
	return strategy.Steps[step].Analysis
}

// addPlan adds what the plan says of the metric.
func (m *Metric) addPlan(spec *v1alpha1.Metric, step *v1alpha1.StepAnalysis) {
	if step != nil && !m.Background {
		m.Planned = measure.Planned(spec, step.Duration.Duration)
	}
	if measure.Timed(spec) {
		m.Kind = KindCheck
	}
	m.Max, m.Min = limitOf(spec.Max), limitOf(spec.Min)
	if c := spec.Compare; c != nil {
		m.Compare = "worse if " + strings.ToLower(string(c.Worse)) + " by " + string(c.By)
		if c.Confidence != "" {
			m.Compare += " with a confidence of " + string(c.Confidence)
		}
	}
}

func limitOf(d *v1alpha1.Decimal) *Limit {
	if d == nil {
		return nil
	}
	value, _ := measure.Number(*d)
	return &Limit{Text: string(*d), Value: value}
}

// kindOf tells proportions by their values.
func kindOf(st *v1alpha1.MetricStatus) Kind {
	proportion := strings.Contains(st.Update+st.Stable, "/")
	for _, w := range st.Measurements {
		proportion = proportion || strings.Contains(w.Update+w.Stable, "/")
	}
	if proportion {
		return KindProportion
	}
	return KindValue
}

// verdictTone tells a metric that is being measured from one without an answer.
func verdictTone(v v1alpha1.Verdict, reason string) Tone {
	switch v {
	case v1alpha1.VerdictPass:
		return ToneGood
	case v1alpha1.VerdictFail:
		return ToneBad
	case v1alpha1.VerdictUnknown:
	}
	if reason == "" || reason == verdict.Measuring {
		return ToneBusy
	}
	return ToneWaits
}

// maxNumber is the largest number that a picture can show. The engine takes no larger ones.
const maxNumber = 1e300

// number returns a finite number; false: the text has none.
func number(text string) (float64, bool) {
	f, err := strconv.ParseFloat(text, 64)
	return f, err == nil && !math.IsNaN(f) && math.Abs(f) <= maxNumber
}

// valueOf returns the value of a measurement; nil: it has none that can be drawn.
func valueOf(kind Kind, text string) *float64 {
	if part, of, ok := strings.Cut(text, "/"); ok && kind == KindProportion {
		a, isPart := number(part)
		b, isTotal := number(of)
		if f := a / b; isPart && isTotal && b != 0 && math.Abs(f) <= maxNumber {
			return &f
		}
		return nil
	}
	if f, ok := number(text); ok {
		return &f
	}
	return nil
}

// maxText is the length of a value that is not understood.
const maxText = 40

// textOf returns a value for people: 4.0 % (41/1022).
func textOf(kind Kind, text string) string {
	v := valueOf(kind, text)
	switch {
	case text == "":
		return ""
	case v == nil:
		return clippedTo(text, maxText)
	case kind == KindCheck && *v == 1:
		return "passed"
	case kind == KindCheck && *v == 0:
		return "failed"
	case kind == KindProportion && strings.Contains(text, "/"):
		return verdict.Percent(*v) + " (" + clippedTo(text, maxText) + ")"
	}
	return strconv.FormatFloat(*v, 'g', 4, 64)
}

// summary returns the value over all windows: the sum, the median, or how many checks passed.
func summary(kind Kind, sum string, values []string) string {
	if len(values) == 0 {
		return textOf(kind, sum)
	}
	numbers := make([]float64, 0, len(values))
	passed := 0
	for _, v := range values {
		if f, ok := number(v); ok {
			numbers = append(numbers, f)
			if f != 0 {
				passed++
			}
		}
	}
	if kind == KindCheck {
		return fmt.Sprintf("%d of %d passed", passed, len(numbers))
	}
	n := len(numbers)
	if n == 0 {
		return ""
	}
	slices.Sort(numbers)
	return strconv.FormatFloat(numbers[(n-1)/2]/2+numbers[n/2]/2, 'g', 4, 64) + fmt.Sprintf(" (median of %d)", n)
}

// EvidenceOf returns verdicts that have been recorded.
func EvidenceOf(records []v1alpha1.MetricRecord) []Evidence {
	var made []Evidence
	for i := range records {
		r := &records[i]
		kind := KindValue
		if strings.Contains(r.Update+r.Stable, "/") {
			kind = KindProportion
		}
		made = append(made, Evidence{
			Name: r.Name, Background: r.Background, Step: r.Step, Verdict: r.Verdict, Reason: r.Reason, Message: r.Message,
			Update: textOf(kind, r.Update), Stable: textOf(kind, r.Stable), P: r.P,
		})
	}
	return made
}

// Values returns the values of both revisions in words; empty: there are none.
func (e *Evidence) Values() string { return values(e.Update, e.Stable) }

// Values returns the values of both revisions in words; empty: there are none.
func (m *Metric) Values() string { return values(m.Update, m.Stable) }

func values(update, stable string) string {
	switch {
	case update == "" && stable == "":
		return ""
	case update == "":
		return "no value against " + stable + " of stable"
	case stable == "":
		return update
	}
	return update + " against " + stable + " of stable"
}

// Line is the evidence in a line: step 0: errors Fail, 4.0 % (41/1022) against 0.1 % (12/9210) of stable.
func (e *Evidence) Line() string {
	line := fmt.Sprintf("step %d: %s %s", e.Step, e.Name, e.Verdict)
	if v := e.Values(); v != "" {
		return line + ", " + v
	}
	if e.Reason != "" {
		line += ", " + e.Reason
	}
	return line
}

// Says is the verdict in words.
func (m *Metric) Says() string {
	switch {
	case m.Verdict == v1alpha1.VerdictPass:
		return "passes"
	case m.Verdict == v1alpha1.VerdictFail:
		return "fails: " + m.Reason
	case m.Tone == ToneBusy:
		return "measuring"
	}
	return "unknown: " + m.Reason
}

// Line is the metric in a line: its verdict, the values of both revisions, and its limits.
func (m *Metric) Line() string {
	parts := []string{m.Says()}
	if v := m.Values(); v != "" {
		parts = append(parts, v)
	}
	if m.Max != nil {
		parts = append(parts, "max "+m.Max.Text)
	}
	if m.Min != nil {
		parts = append(parts, "min "+m.Min.Text)
	}
	if m.Count < m.Planned {
		parts = append(parts, fmt.Sprintf("%d of %d windows", m.Count, m.Planned))
	}
	return strings.Join(parts, "; ")
}
