package measure

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

const (
	// maxMetrics is the number of metrics that a plan may have.
	maxMetrics = 12
	// maxStepValues is the number of values that one metric without a total, and all of them
	// together, may have on one side at one step. The status keeps them, in at most 64 KiB.
	maxMetricValues = 120
	maxStepValues   = 500
	// shortestInterval is that of a metric, and of an analysis.
	shortestInterval = 10 * time.Second
	// The longest ones. Sums of a few of these are far from the largest duration.
	longestInterval = 24 * time.Hour
	longestDuration = 720 * time.Hour
)

// Validate checks what a plan measures, as far as a plan tells it by itself.
func Validate(s *v1alpha1.BatchStrategy, at *field.Path) field.ErrorList {
	errs := validateStepAnalyses(s, at.Child("steps"))
	a := s.Analysis
	if a == nil {
		return errs
	}
	at = at.Child("analysis")
	errs = append(errs, validateEnum(at.Child("mode"), a.Mode, v1alpha1.AnalysisAct, v1alpha1.AnalysisObserve)...)
	errs = append(errs, validateEnum(at.Child("onFailure"), a.OnFailure, v1alpha1.FailureHold, v1alpha1.FailureRollback)...)
	errs = append(errs,
		validateEnum(at.Child("onUnknown"), a.OnUnknown, v1alpha1.UnknownHold, v1alpha1.UnknownRollback, v1alpha1.UnknownPass)...)
	if d := a.UnknownDeadlineSeconds; d != nil && (*d < 0 || *d > 604800) {
		errs = append(errs, field.Invalid(at.Child("unknownDeadlineSeconds"), *d, "must be from 0 to 604800"))
	}
	if len(a.Metrics) > maxMetrics {
		errs = append(errs, field.Invalid(at.Child("metrics"), len(a.Metrics), fmt.Sprintf("must be at most %d metrics", maxMetrics)))
	}
	errs = append(errs, ValidateMetrics(a.Metrics, at.Child("metrics"))...)
	if len(a.From) > 0 { // what they bring is not known yet
		return errs
	}
	for i, name := range a.Background {
		where := at.Child("background").Index(i)
		m := metricNamed(a, name)
		switch {
		case m == nil:
			errs = append(errs, field.Invalid(where, name, "no metric has this name"))
		case slices.Contains(a.Background[:i], name):
			errs = append(errs, field.Invalid(where, name, "is named twice"))
		case m.Job != nil:
			errs = append(errs, field.Invalid(where, name, "a Job is not run in the background; name it at a step"))
		}
	}
	return errs
}

func validateEnum[T ~string](at *field.Path, value T, valid ...T) field.ErrorList {
	if value == "" || slices.Contains(valid, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, value, valid)}
}

// metricNamed returns the metric of a name; nil without one.
func metricNamed(a *v1alpha1.Analysis, name string) *v1alpha1.Metric {
	for i := range a.Metrics {
		if a.Metrics[i].Name == name {
			return &a.Metrics[i]
		}
	}
	return nil
}

// validateStepAnalyses checks the analyses of steps, and the metrics at the duration of each.
func validateStepAnalyses(s *v1alpha1.BatchStrategy, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, step := range s.Steps {
		a := step.Analysis
		if a == nil {
			continue
		}
		where := at.Index(i).Child("analysis")
		if step.Pause != nil {
			errs = append(errs, field.Forbidden(at.Index(i).Child("pause"), "pause and analysis exclude each other; an analysis has a duration"))
		}
		if d := a.Duration.Duration; d < shortestInterval || d > longestDuration {
			errs = append(errs, field.Invalid(where.Child("duration"), d.String(), "must be from 10s to 720h"))
		}
		if a.Approval && i == len(s.Steps)-1 {
			errs = append(errs,
				field.Forbidden(where.Child("approval"), "the last step leads to no other one; give the step before it an approval"))
		}
		if s.Analysis == nil {
			errs = append(errs, field.Required(where, "spec.strategy.analysis must have the metrics"))
			continue
		}
		if len(s.Analysis.From) == 0 {
			errs = append(errs, validateStep(s.Analysis, a, where)...)
		}
	}
	return errs
}

func validateStep(a *v1alpha1.Analysis, step *v1alpha1.StepAnalysis, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := step.Metrics
	if len(names) == 0 {
		for _, m := range a.Metrics {
			names = append(names, m.Name)
		}
		if len(names) == 0 {
			errs = append(errs, field.Required(at, "spec.strategy.analysis.metrics must have a metric"))
		}
	}
	values := int32(0)
	for i, name := range names {
		where := at
		if len(step.Metrics) > 0 {
			where = at.Child("metrics").Index(i)
		}
		m := metricNamed(a, name)
		switch {
		case m == nil:
			errs = append(errs, field.Invalid(where, name, "no metric has this name"))
			continue
		case slices.Contains(names[:i], name):
			errs = append(errs, field.Invalid(where, name, "is named twice"))
			continue
		}
		if fact := misfitsStep(m, step.Duration.Duration); fact != "" {
			errs = append(errs, field.Invalid(where, name, fact))
		}
		if !HasTotal(m) {
			values += Planned(m, step.Duration.Duration) * PerWindow(m)
		}
	}
	if values > maxStepValues {
		errs = append(errs, field.Invalid(at, values,
			fmt.Sprintf("values of all metrics at one step must be at most %d; measure less often", maxStepValues)))
	}
	return errs
}

// misfitsStep says why a metric cannot be measured at a step of this duration; empty: it can.
func misfitsStep(m *v1alpha1.Metric, of time.Duration) string {
	if Interval(m) < shortestInterval { // said already
		return ""
	}
	planned := Planned(m, of)
	values := planned * PerWindow(m)
	switch need := Minimum(m); {
	case !Timed(m) && WarmUp(m) > of-Interval(m):
		return fmt.Sprintf("warmUp of %s and one interval of %s are longer than the duration of %s", WarmUp(m), Interval(m), of)
	case HasTotal(m):
		return ""
	case values > maxMetricValues:
		return fmt.Sprintf("has %d values in %s, above %d; measure less often", values, of, maxMetricValues)
	case Timed(m):
		return ""
	case values < need:
		return fmt.Sprintf("has %d values in %s, and needs %d to be judged; measure longer, or more often", values, of, need)
	case m.Compare != nil && need < NeededSamples(m):
		return fmt.Sprintf("minimum is %d, and with fewer than %d values a side no difference is significant", need, NeededSamples(m))
	}
	return ""
}

// ValidateMetrics checks metrics one by one.
func ValidateMetrics(metrics []v1alpha1.Metric, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range metrics {
		m, where := &metrics[i], at.Index(i)
		if m.Name == "" {
			errs = append(errs, field.Required(where.Child("name"), "must be set"))
		}
		if slices.ContainsFunc(metrics[:i], func(o v1alpha1.Metric) bool { return o.Name == m.Name }) {
			errs = append(errs, field.Invalid(where.Child("name"), m.Name, "is the name of another metric, too"))
		}
		errs = append(errs, validateMetric(m, where)...)
	}
	return errs
}

func validateMetric(m *v1alpha1.Metric, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if providers(m) != 1 {
		return field.ErrorList{field.Required(at, "must have exactly one of prometheus, web, job and datadog")}
	}
	limited := m.Max != nil || m.Min != nil || m.Compare != nil
	switch {
	case Timed(m) && limited:
		errs = append(errs, field.Forbidden(at, "max, min and compare are for prometheus and datadog"))
	case !Timed(m) && !limited:
		errs = append(errs, field.Required(at, "must have max, min or compare"))
	case !Timed(m) && m.Count > 0:
		errs = append(errs, field.Forbidden(at.Child("count"), "it is for web and job"))
	}
	if (m.Web != nil) != (m.Condition != "") {
		errs = append(errs, field.Required(at.Child("condition"), "is required with web, and is for web alone"))
	}
	errs = append(errs, validateTimes(m, at)...)
	errs = append(errs, validateEnum(at.Child("scope"), m.Scope, v1alpha1.ScopeRevision, v1alpha1.ScopeDeployment)...)
	errs = append(errs, validateEnum(at.Child("noData"), m.NoData, v1alpha1.NoDataUnknown, v1alpha1.NoDataZero)...)
	errs = append(errs, validateProvider(m, at)...)
	return append(errs, validateComparison(m, at)...)
}

// validateTimes checks the schedule of a metric.
func validateTimes(m *v1alpha1.Metric, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	add := func(child, value, fact string) { errs = append(errs, field.Invalid(at.Child(child), value, fact)) }
	if d := Interval(m); d < shortestInterval || d > longestInterval {
		add("interval", d.String(), "must be from 10s to 24h")
	}
	if d := Delay(m); d < 0 || d > 10*time.Minute {
		add("delay", d.String(), "must be from 0s to 10m")
	}
	if d := WarmUp(m); d < 0 || d > longestInterval {
		add("warmUp", d.String(), "must be from 0s to 24h")
	}
	return errs
}

// providers counts those that a metric names.
func providers(m *v1alpha1.Metric) int {
	n := 0
	for _, set := range []bool{m.Prometheus != nil, m.Web != nil, m.Job != nil, m.Datadog != nil} {
		if set {
			n++
		}
	}
	return n
}

// validateComparison checks limits and the comparison.
func validateComparison(m *v1alpha1.Metric, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if m.Max != nil && m.Min != nil {
		low, _ := Number(*m.Min)
		if high, _ := Number(*m.Max); low > high {
			errs = append(errs, field.Invalid(at.Child("min"), string(*m.Min), "is above max"))
		}
	}
	c := m.Compare
	if c == nil {
		return errs
	}
	at = at.Child("compare")
	if c.Worse != v1alpha1.WorseHigher && c.Worse != v1alpha1.WorseLower {
		errs = append(errs, field.NotSupported(at.Child("worse"), c.Worse, []v1alpha1.Direction{v1alpha1.WorseHigher, v1alpha1.WorseLower}))
	}
	if c.By == "" {
		errs = append(errs, field.Required(at.Child("by"), "must be the least difference that counts as harm"))
	} else if by, _ := Number(c.By); by < 0 {
		errs = append(errs, field.Invalid(at.Child("by"), string(c.By), "must not be negative"))
	}
	if c.Confidence != "" {
		if confidence, _ := Number(c.Confidence); confidence < 0.5 || confidence > 0.999 {
			errs = append(errs, field.Invalid(at.Child("confidence"), string(c.Confidence), "must be from 50% to 99.9%"))
		}
	}
	if m.Scope == v1alpha1.ScopeDeployment {
		errs = append(errs, field.Forbidden(at, "a query of scope Deployment is about both revisions"))
	}
	return errs
}

// validateProvider checks where a metric comes from.
func validateProvider(m *v1alpha1.Metric, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if p := m.Prometheus; p != nil {
		at := at.Child("prometheus")
		errs = append(errs, validateEnum(at.Child("syntax"), p.Syntax, v1alpha1.SyntaxPromQL, v1alpha1.SyntaxUnchecked)...)
		switch {
		case p.Query == "":
			errs = append(errs, field.Required(at.Child("query"), "must be set"))
		case (p.Provider == "") == (p.Address == ""):
			errs = append(errs, field.Required(at, "must have exactly one of provider and address"))
		case p.SecretRef != nil && p.Address == "":
			errs = append(errs, field.Forbidden(at.Child("secretRef"), "it is for address; a provider has its own"))
		case p.Samples != nil && p.Total != "":
			errs = append(errs, field.Forbidden(at.Child("samples"), "samples and total exclude each other"))
		case p.Samples != nil && (p.Samples.Duration < 5*time.Second || Interval(m)%p.Samples.Duration != 0):
			errs = append(errs, field.Invalid(at.Child("samples"), p.Samples.Duration.String(),
				fmt.Sprintf("must be at least 5s, and the interval of %s a multiple of it", Interval(m))))
		}
	}
	if d := m.Datadog; d != nil && (d.Provider == "") == (d.SecretRef == nil) {
		errs = append(errs, field.Required(at.Child("datadog"), "must have exactly one of provider and secretRef"))
	}
	return errs
}
