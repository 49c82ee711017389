package measure

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Evidence is a record in one line: the metric, its verdict with the reason, and the values of
// both revisions.
func Evidence(r *v1alpha1.MetricRecord) string {
	words := []string{r.Name, string(r.Verdict)}
	if r.Reason != "" {
		words = append(words, r.Reason)
	}
	for _, v := range []struct{ name, value string }{{"update", r.Update}, {"stable", r.Stable}, {"p", r.P}} {
		if v.value != "" {
			words = append(words, v.name+"="+v.value)
		}
	}
	return strings.Join(append(words, fmt.Sprintf("step=%d", r.Step)), " ")
}

// EvidenceTable has a row for each record, for the text of a commit. It is empty without
// records.
func EvidenceTable(records []v1alpha1.MetricRecord) string {
	if len(records) == 0 {
		return ""
	}
	orNone := func(value string) string {
		if value == "" {
			return "-"
		}
		return value
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "METRIC\tSTEP\tVERDICT\tREASON\tUPDATE\tSTABLE\tP")
	for i := range records {
		r := &records[i]
		_, _ = fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n",
			r.Name, r.Step, r.Verdict, orNone(r.Reason), orNone(r.Update), orNone(r.Stable), orNone(r.P))
	}
	_ = w.Flush() // a strings.Builder takes all
	return b.String()
}
