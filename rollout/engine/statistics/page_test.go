package statistics_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/rollout/engine/statistics"
)

var rewrite = flag.Bool("rewrite", false, "write the tables of docs/analysis-statistics.md as they come out")

// page has the tables that a test writes, each after a comment with its name.
const page = "../../../docs/analysis-statistics.md"

var generated = regexp.MustCompile(`(?m)^<!-- table (\S+) -->\n((?:\|.*\n)*)`)

// tables are those of the page.
var tables = map[string]func() string{
	"nine": func() string { return detectable(9) },
	"same": func() string { return detectable(1) },
	"samples": func() string {
		b := strings.Builder{}
		b.WriteString("| values a side | detected difference, in standard deviations |\n|---|---|\n")
		for _, n := range []int{3, 5, 8, 10, 15, 20, 30, 50} {
			cell := "none"
			if shift, ok := planned.DetectableShift(0, 1, n, n, 5); ok {
				cell = digits(shift)
			}
			fmt.Fprintf(&b, "| %d | %s |\n", n, cell)
		}
		return b.String()
	},
	"alarms": func() string {
		b := strings.Builder{}
		b.WriteString("| requests | Tranche, `by: 0` | Tranche, `by: 2%` | without the rule |\n|---|---|---|---|\n")
		for _, requests := range []int{10, 100, 1000} {
			a := proportionAlarms(higher, requests, 9, 0.05)
			by := proportionAlarms(statistics.Rule{Confidence: 0.95, By: 0.02}, requests, 9, 0.05)
			part := func(n int) string { return strconv.FormatFloat(float64(n)*100/releases, 'f', 1, 64) + " %" }
			fmt.Fprintf(&b, "| %d | %s | %s | %s |\n", requests, part(a.rule), part(by.rule), part(a.naive))
		}
		return b.String()
	},
	"judgements": func() string {
		b := strings.Builder{}
		b.WriteString("| judgements | p before the last one | p at the last one | detected increase, in points |\n|---|---|---|---|\n")
		for _, n := range []int{1, 2, 5, 10, 60} {
			early := "-"
			if n > 1 {
				early = digits(higher.Level(1, n))
			}
			harm, _ := higher.DetectableRate(0.01, 1800, 9*1800, n)
			fmt.Fprintf(&b, "| %d | %s | %s | %.3f |\n", n, early, digits(higher.Level(n, n)), harm*100)
		}
		return b.String()
	},
}

// planned is the rule of the tables of detected differences.
var planned = statistics.Rule{Confidence: 0.95}

// detectable is the table of increases that are noticed, with as many times the requests on
// the side of the stable revision.
func detectable(times float64) string {
	bases := []float64{0.001, 0.01, 0.05, 0.2}
	b := strings.Builder{}
	b.WriteString("| requests |")
	for _, base := range bases {
		fmt.Fprintf(&b, " %s %% of stable's fail |", digits(base*100))
	}
	b.WriteString("\n|---|---|---|---|---|\n")
	for _, requests := range []float64{20, 100, 500, 1800, 5000, 20000, 100000, 1000000} {
		fmt.Fprintf(&b, "| %.0f |", requests)
		for _, base := range bases {
			if harm, ok := planned.DetectableRate(base, requests, requests*times, 5); ok {
				fmt.Fprintf(&b, " %s |", digits(harm*100))
			} else {
				b.WriteString(" none |")
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// digits returns a number with two significant digits.
func digits(f float64) string {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'g', 2, 64), 64)
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}

// The tables of the page come from the code.
func TestPage_Tables(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	fresh := generated.ReplaceAllStringFunc(string(text), func(found string) string {
		m := generated.FindStringSubmatch(found)
		table, ok := tables[m[1]]
		if !ok {
			t.Fatalf("%s: no table is named %s", page, m[1])
		}
		seen[m[1]] = true
		want := table()
		if m[2] != want && !*rewrite {
			t.Errorf("%s: the table %s is\n%snot\n%srun go test ./rollout/engine/statistics -run TestPage -rewrite", page, m[1], m[2], want)
		}
		return "<!-- table " + m[1] + " -->\n" + want
	})
	if len(seen) != len(tables) {
		t.Errorf("%s: has the tables %v, of %d", page, seen, len(tables))
	}
	if *rewrite {
		if err := os.WriteFile(page, []byte(fresh), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
