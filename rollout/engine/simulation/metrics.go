package simulation

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tranche-dev/tranche/plan/measure"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/engine/verdict"
)

// Outcome is what a metric says from a step on. All others pass.
type Outcome struct {
	Metric string
	// Verdict is Fail or Unknown, or Pass.
	Verdict v1alpha1.Verdict
	// From is the first step at which it says so.
	From int32
}

// ParseOutcome reads errors=fail@1: a metric, pass, fail or unknown, and the first step; 0 without
// one.
func ParseOutcome(text string) (Outcome, error) {
	name, says, ok := strings.Cut(text, "=")
	word, step, at := strings.Cut(says, "@")
	i := slices.IndexFunc([]v1alpha1.Verdict{v1alpha1.VerdictPass, v1alpha1.VerdictFail, v1alpha1.VerdictUnknown},
		func(v v1alpha1.Verdict) bool { return strings.EqualFold(string(v), word) })
	from, err := int64(0), error(nil)
	if at {
		from, err = strconv.ParseInt(step, 10, 32)
	}
	if !ok || name == "" || i < 0 || err != nil || from < 0 {
		return Outcome{}, fmt.Errorf("%q is not an outcome of a metric; write one such as errors=fail@1, with pass, fail or unknown", text)
	}
	return Outcome{name, []v1alpha1.Verdict{v1alpha1.VerdictPass, v1alpha1.VerdictFail, v1alpha1.VerdictUnknown}[i], int32(from)}, nil
}

// outcome is what a metric says at a step.
func (s *Simulation) outcome(metric string, step int32) v1alpha1.Verdict {
	says := v1alpha1.VerdictPass
	for _, o := range s.Outcomes {
		if o.Metric == metric && step >= o.From {
			says = o.Verdict
		}
	}
	return says
}

// answer answers the measurements that are due.
func (m *model) answer(d engine.Decision) {
	m.measured = nil
	for _, q := range d.Measure {
		if q.At.After(m.now) {
			continue
		}
		a := engine.Measured{Key: q.Key, Update: &verdict.Answer{Unknown: verdict.NoData, Message: "the simulation has no data"}}
		metric := m.metric(q.Metric)
		if says := m.outcome(q.Metric, d.Status.CurrentStepIndex); says != v1alpha1.VerdictUnknown && metric != nil {
			a.Update, a.Stable = values(metric, says), values(metric, v1alpha1.VerdictPass)
		}
		m.measured = append(m.measured, a)
	}
}

func (m *model) metric(name string) *v1alpha1.Metric {
	t := verdict.Track{Plan: m.Plan.Analysis}
	return t.Metric(name)
}

// values returns an answer by which a metric passes or fails.
func values(m *v1alpha1.Metric, says v1alpha1.Verdict) *verdict.Answer {
	good, bad := good(m)
	value := good
	if says == v1alpha1.VerdictFail {
		value = bad
	}
	text := strconv.FormatFloat(value, 'f', -1, 64)
	if !measure.HasTotal(m) {
		return &verdict.Answer{Values: slices.Repeat([]string{text}, int(measure.PerWindow(m)))}
	}
	const total = 1_000_000
	return &verdict.Answer{Values: []string{strconv.FormatFloat(value*total, 'f', 0, 64)}, Total: strconv.Itoa(total)}
}

// good returns a value by which a metric passes, and one by which it fails.
func good(m *v1alpha1.Metric) (good, bad float64) {
	lower := m.Compare != nil && m.Compare.Worse == v1alpha1.WorseLower || m.Max == nil && m.Min != nil
	switch {
	case measure.Timed(m):
		return 1, 0
	case measure.HasTotal(m) && lower:
		return 1, 0
	case measure.HasTotal(m):
		return 0, 1
	}
	good = 1
	for _, limit := range []*v1alpha1.Decimal{m.Max, m.Min} {
		if limit != nil {
			good, _ = measure.Number(*limit)
			break
		}
	}
	far := 1000 * (1 + max(good, -good))
	if lower {
		return good, good - far
	}
	return good, good + far
}
