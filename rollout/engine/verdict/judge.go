package verdict

import (
	"fmt"

	"github.com/tranche-dev/tranche/plan/measure"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/statistics"
)

// Reasons of verdicts, in addition to those for which a measurement has no value.
const (
	// WithinLimits: the metric passes.
	WithinLimits = "WithinLimits"
	// AboveMax and BelowMin: the metric fails.
	AboveMax = "AboveMax"
	BelowMin = "BelowMin"
	// WorseThanStable: harm is significant, and at least compare.by.
	WorseThanStable = "WorseThanStable"
	// ChecksFailed: more measurements of web or job failed than failureLimit.
	ChecksFailed = "ChecksFailed"
	// Measuring: windows of the duration are missing.
	Measuring = "Measuring"
	// BelowMinimum: there is less evidence than minimum.
	BelowMinimum = "BelowMinimum"
	// StableFailsToo: the stable revision is beyond the limit, too.
	StableFailsToo = "StableFailsToo"
	// NotProven: harm of compare.by is not excluded, and the plan wants that.
	NotProven = "NotProven"
)

// noValue is said of a metric that has none yet.
const noValue = " has no value yet"

// Case is what a metric is judged by.
type Case struct {
	Metric *v1alpha1.Metric
	Status *v1alpha1.MetricStatus
	// Planned is the number of measurements that the duration needs.
	Planned int32
	// Earlier is the record of the same question at earlier steps of this release; nil without
	// one. The stable revision's values there count where it has too few now.
	Earlier *v1alpha1.MetricRecord
}

// Judgement is the verdict of a metric.
type Judgement struct {
	Verdict         v1alpha1.Verdict
	Reason, Message string
	// P is the p-value of the comparison; empty without one.
	P string
	// Recorded: the stable revision's values are those of earlier steps.
	Recorded bool
}

// Judge returns the verdict of a metric. It depends on the values and the plan alone, and not
// on the time.
func Judge(c Case) Judgement {
	j := judged(&c)
	if j.Verdict == v1alpha1.VerdictUnknown && j.Reason == Measuring || c.Status.Background && j.Verdict == v1alpha1.VerdictPass {
		if r := c.unanswered(); r != nil {
			j.Verdict, j.Reason = v1alpha1.VerdictUnknown, r.Reason
			j.Message = c.Metric.Name + ": " + r.Message
		}
	}
	return j
}

// judged judges the values that there are.
func judged(c *Case) Judgement {
	switch {
	case measure.Timed(c.Metric):
		return c.checks()
	case measure.HasTotal(c.Metric):
		return c.proportion()
	}
	return c.values()
}

// unanswered returns why the newest measurement has no value; nil if it has one.
func (c *Case) unanswered() *v1alpha1.UnknownReason {
	if c.Status.Pending != nil {
		return c.Status.Pending
	}
	if n := len(c.Status.Measurements); n > 0 && c.Status.Measurements[n-1].Reason != "" {
		return &v1alpha1.UnknownReason{Reason: c.Status.Measurements[n-1].Reason, Message: c.Status.Measurements[n-1].Message}
	}
	return nil
}

// checks judges measurements that pass or fail by themselves.
func (c *Case) checks() Judgement {
	failed := 0
	for _, v := range c.Status.UpdateValues {
		if number(v) == 0 {
			failed++
		}
	}
	message := c.Metric.Name + noValue
	if n := len(c.Status.UpdateValues); n > 0 {
		message = fmt.Sprintf("%s failed in %d of %d measurements", c.Metric.Name, failed, n)
	}
	if failed > int(c.Metric.FailureLimit) {
		return Judgement{Verdict: v1alpha1.VerdictFail, Reason: ChecksFailed, Message: message}
	}
	return c.conclude(message, true, statistics.Pass)
}

// conclude returns Pass once all planned windows have values and there is enough evidence. Until
// then, and while harm is not excluded that has to be, it is Unknown.
func (c *Case) conclude(message string, enough bool, compared statistics.Verdict) Judgement {
	unknown := func(reason, message string) Judgement {
		return Judgement{Verdict: v1alpha1.VerdictUnknown, Reason: reason, Message: message}
	}
	switch {
	case c.Status.Count < c.Planned:
		return unknown(Measuring, fmt.Sprintf("%s; %d of %d measurements", message, c.Status.Count, c.Planned))
	case !enough:
		return unknown(BelowMinimum, fmt.Sprintf("%s; each side needs a minimum of %d", message, measure.Minimum(c.Metric)))
	case c.Metric.Compare != nil && compared == statistics.Undecided: // refused: nothing was compared
		return unknown(BadAnswer, message+"; these values cannot be compared")
	case compared == statistics.Unproven:
		return unknown(NotProven, fmt.Sprintf("%s; a difference of %s is not excluded", message, c.Metric.Compare.By))
	}
	return Judgement{Verdict: v1alpha1.VerdictPass, Reason: WithinLimits, Message: message}
}

// breaks returns the reason for which a value is beyond the limits; empty if it is not.
func breaks(m *v1alpha1.Metric, value float64) string {
	if m.Max != nil {
		if limit, _ := measure.Number(*m.Max); value > limit {
			return AboveMax
		}
	}
	if m.Min != nil {
		if limit, _ := measure.Number(*m.Min); value < limit {
			return BelowMin
		}
	}
	return ""
}

// shown returns a value for people: with four digits, unless these are on the other side of a limit.
func shown(m *v1alpha1.Metric, value float64) string {
	text := short(value)
	if breaks(m, number(text)) != breaks(m, value) {
		return exact(value)
	}
	return text
}

// limits names the limits for people.
func limits(m *v1alpha1.Metric) string {
	text := ""
	if m.Max != nil {
		text += fmt.Sprintf("; max %s", *m.Max)
	}
	if m.Min != nil {
		text += fmt.Sprintf("; min %s", *m.Min)
	}
	return text
}

// proportion judges the sums over the windows.
func (c *Case) proportion() Judgement {
	m, least := c.Metric, float64(measure.Minimum(c.Metric))
	update, stable := parseSum(c.Status.Update), parseSum(c.Status.Stable)
	recorded := m.Compare != nil && stable.total < least && c.Earlier != nil
	if recorded {
		stable = stable.plus(parseSum(c.Earlier.StableTotal))
	}
	message := m.Name + noValue
	if update.total > 0 {
		message = fmt.Sprintf("%s %s (%s)", m.Name, Percent(update.rate()), update)
	}
	if stable.total > 0 {
		message += fmt.Sprintf(" against %s (%s) of stable", Percent(stable.rate()), stable)
	}
	message += limits(m)
	enough, both := update.total >= least, update.total >= least && stable.total >= least
	compared, p := c.compare(both, func(r statistics.Rule) (statistics.Evidence, error) {
		a, err := statistics.NewProportion(update.count, update.total)
		if err != nil {
			return statistics.Evidence{}, err
		}
		b, err := statistics.NewProportion(stable.count, stable.total)
		if err != nil {
			return statistics.Evidence{}, err
		}
		return r.Proportions(a, b), nil
	})
	too := stable.total >= least && breaks(m, stable.rate()) != ""
	reason := ""
	if enough {
		reason = breaks(m, update.rate())
	}
	j := c.decide(message, reason, too, compared, m.Compare == nil && enough || both)
	j.P, j.Recorded = p, recorded && p != ""
	return j
}

// decide puts together what limits and comparison say.
func (c *Case) decide(message, breaks string, stableBreaks bool, compared statistics.Verdict, enough bool) Judgement {
	switch {
	case compared == statistics.Fail:
		message += "; worse by " + string(c.Metric.Compare.By)
		return Judgement{Verdict: v1alpha1.VerdictFail, Reason: WorseThanStable, Message: message}
	case breaks != "" && stableBreaks:
		return Judgement{Verdict: v1alpha1.VerdictUnknown, Reason: StableFailsToo, Message: message + "; the stable revision fails, too"}
	case breaks != "":
		return Judgement{Verdict: v1alpha1.VerdictFail, Reason: breaks, Message: message}
	}
	return c.conclude(message, enough, compared)
}

// values judges values one by one.
func (c *Case) values() Judgement {
	m := c.Metric
	update, stable := numbers(c.Status.UpdateValues), numbers(c.Status.StableValues)
	recorded := m.Compare != nil && len(stable) < int(measure.Minimum(m)) && c.Earlier != nil
	if recorded {
		stable = append(numbers(c.Earlier.StableValues), stable...)
	}
	message := m.Name + noValue
	if len(update) > 0 {
		message = fmt.Sprintf("%s %s (median of %d)", m.Name, shown(m, median(update)), len(update))
	}
	if len(stable) > 0 {
		message += fmt.Sprintf(" against %s (%d) of stable", shown(m, median(stable)), len(stable))
	}
	message += limits(m)
	enough := len(update) >= int(measure.Minimum(m))
	both := enough && len(stable) >= int(measure.Minimum(m))
	compared, p := c.compare(both, func(r statistics.Rule) (statistics.Evidence, error) {
		a, err := statistics.NewSamples(update)
		if err != nil {
			return statistics.Evidence{}, err
		}
		b, err := statistics.NewSamples(stable)
		if err != nil {
			return statistics.Evidence{}, err
		}
		return r.Samples(a, b), nil
	})
	reason := ""
	if enough {
		reason = c.breaking(update)
	}
	j := c.decide(message, reason, c.breaking(stable) != "", compared, m.Compare == nil && enough || both)
	j.P, j.Recorded = p, recorded && p != ""
	return j
}

// breaking returns the reason of the first value beyond the limits, if more are than
// failureLimit.
func (c *Case) breaking(values []float64) string {
	failed, reason := 0, ""
	for _, v := range values {
		if r := breaks(c.Metric, v); r != "" {
			failed++
			if reason == "" {
				reason = r
			}
		}
	}
	if failed <= int(c.Metric.FailureLimit) {
		return ""
	}
	return reason
}

// compare returns what the comparison says at this look, and its p-value. Without evidence on
// both sides nothing is compared.
func (c *Case) compare(enough bool, evidence func(statistics.Rule) (statistics.Evidence, error)) (statistics.Verdict, string) {
	if c.Metric.Compare == nil || !enough {
		return statistics.Undecided, ""
	}
	n, planned := int(c.Status.Count), int(c.Planned)
	if c.Status.Background { // it has no last judgement
		planned = 0
	}
	r := RuleOf(c.Metric).At(n, planned)
	e, err := evidence(r)
	if err != nil {
		return statistics.Undecided, ""
	}
	p := fmt.Sprintf("%.2g", e.P)
	says := r.Judge(e, n, planned)
	if c.Status.Background && says != statistics.Fail {
		says = statistics.Pass
	}
	return says, p
}

// RuleOf returns the statistical rule of a metric that compares.
func RuleOf(m *v1alpha1.Metric) statistics.Rule {
	r := statistics.Rule{Worse: statistics.Higher, Confidence: 0.95, Prove: m.Compare.Prove}
	r.Grows = m.Max != nil || m.Min != nil // StableFailsToo keeps the verdict open
	if m.Compare.Worse == v1alpha1.WorseLower {
		r.Worse = statistics.Lower
	}
	by, percent := measure.Number(m.Compare.By)
	r.By, r.Relative = by, percent && !measure.HasTotal(m)
	if m.Compare.Confidence != "" {
		r.Confidence, _ = measure.Number(m.Compare.Confidence)
	}
	return r
}
