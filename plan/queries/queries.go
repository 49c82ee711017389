// Package queries checks the queries of metrics when a commit is checked. It checks their
// syntax, with line and column, their placeholders, and that no window is counted twice. It asks
// no server.
package queries

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tranche-dev/tranche/plan/condition"
	"github.com/tranche-dev/tranche/plan/measure"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Check returns what is wrong with the queries and the condition of a metric.
func Check(m *v1alpha1.Metric, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	check := func(name, query string, at *field.Path) {
		if query == "" {
			return
		}
		if placeholder, offset := measure.UnknownPlaceholder(query); offset >= 0 {
			errs = append(errs, field.Invalid(at.Child(name), "", fmt.Sprintf("%s: $(%s) is not known; there are %s",
				place(query, offset), placeholder, strings.Join(measure.Placeholders, ", "))))
			return
		}
		if m.Scope != v1alpha1.ScopeDeployment && !measure.NamesRevision(withoutComments(m, query)) {
			errs = append(errs, field.Invalid(at.Child(name), "",
				"names no revision; use $(pods), $(replicaset) or $(revision), or set scope: Deployment"))
		}
		if m.Prometheus != nil && m.Prometheus.Syntax != v1alpha1.SyntaxUnchecked {
			if fact := checkQuery(m, query); fact != "" {
				errs = append(errs, field.Invalid(at.Child(name), "", fact))
			}
		}
	}
	switch {
	case m.Prometheus != nil:
		check("query", m.Prometheus.Query, at.Child("prometheus"))
		check("total", m.Prometheus.Total, at.Child("prometheus"))
	case m.Datadog != nil:
		check("query", m.Datadog.Query, at.Child("datadog"))
		check("total", m.Datadog.Total, at.Child("datadog"))
	case m.Web != nil:
		errs = checkWeb(m, at)
	}
	return errs
}

// comment is one of PromQL, or a text in quotes, which may have the sign of a comment.
var comment = regexp.MustCompile("(?s)\"(?:[^\"\\\\]|\\\\.)*\"|'(?:[^'\\\\]|\\\\.)*'|`[^`]*`|#[^\n]*")

// withoutComments returns a query of Prometheus without its comments: what they name is not asked.
func withoutComments(m *v1alpha1.Metric, query string) string {
	if m.Prometheus == nil {
		return query
	}
	return comment.ReplaceAllStringFunc(query, func(found string) string {
		if strings.HasPrefix(found, "#") {
			return ""
		}
		return found
	})
}

// checkWeb returns what is wrong with the placeholders and the condition of a web metric. It
// need not name a revision: a probe may know which one it tries.
func checkWeb(m *v1alpha1.Metric, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	texts := map[string]string{"url": m.Web.URL}
	if m.Web.Body != nil {
		texts["body"] = string(m.Web.Body.Raw)
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if placeholder, offset := measure.UnknownPlaceholder(texts[name]); offset >= 0 {
			errs = append(errs, field.Invalid(at.Child("web", name), "", fmt.Sprintf("$(%s) is not known; there are %s",
				placeholder, strings.Join(measure.Placeholders, ", "))))
		}
	}
	if _, err := condition.Compile(m.Condition); m.Condition != "" && err != nil {
		errs = append(errs, field.Invalid(at.Child("condition"), "", err.Error()))
	}
	return errs
}

// language is that of a Prometheus with all its options: a server may have them on.
var language = parser.NewParser(parser.Options{
	EnableExperimentalFunctions: true, ExperimentalDurationExpr: true, EnableExtendedRangeSelectors: true, EnableBinopFillModifiers: true,
})

// checkQuery returns what is wrong with a query; empty: nothing.
func checkQuery(m *v1alpha1.Metric, query string) string {
	expr, err := language.ParseExpr(fillIn(query, measure.Interval(m)))
	if err != nil {
		var problems parser.ParseErrors
		if errors.As(err, &problems) && len(problems) > 0 {
			return fmt.Sprintf("%s: %s", place(query, int(problems[0].PositionRange.Start)), problems[0].Err)
		}
		return err.Error()
	}
	switch expr.Type() {
	case parser.ValueTypeVector, parser.ValueTypeScalar:
	default:
		return fmt.Sprintf("has the type %s; it must yield one value", parser.DocumentedType(expr.Type()))
	}
	return checkRanges(m, query, expr)
}

// checkRanges refuses ranges that are longer than the time between two values: each of these
// would have a part of the one before.
func checkRanges(m *v1alpha1.Metric, query string, expr parser.Expr) string {
	every, of := measure.Interval(m), "interval"
	if m.Prometheus.Samples != nil {
		every, of = m.Prometheus.Samples.Duration, "samples"
	} else if m.Compare == nil && !measure.HasTotal(m) {
		return ""
	}
	fact := ""
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		length := time.Duration(0)
		switch n := node.(type) {
		case *parser.MatrixSelector:
			length = n.Range
		case *parser.SubqueryExpr:
			length = n.Range
		}
		if length > every && fact == "" {
			fact = fmt.Sprintf("%s: the range of %s is longer than %s, %s, so values would overlap",
				place(query, int(node.PositionRange().Start)), length, of, every)
		}
		return nil
	})
	return fact
}

var placeholder = regexp.MustCompile(`\$\([a-z]+\)`)

// fillIn puts text of the same length in the place of placeholders, so that columns stay.
func fillIn(query string, window time.Duration) string {
	return placeholder.ReplaceAllStringFunc(query, func(found string) string {
		switch found {
		case "$(window)":
			return fmt.Sprintf("%0*ds", len(found)-1, int(window.Seconds()))
		case "$(step)":
			return strings.Repeat("0", len(found))
		}
		return strings.Repeat("x", len(found))
	})
}

// place is the line and column of an offset.
func place(query string, offset int) string {
	before := query[:max(0, min(offset, len(query)))]
	line := strings.Count(before, "\n") + 1
	return fmt.Sprintf("line %d, column %d", line, len([]rune(before[strings.LastIndex(before, "\n")+1:]))+1)
}
