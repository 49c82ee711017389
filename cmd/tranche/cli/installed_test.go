package cli

import (
	"fmt"
	"strings"
	"testing"
)

// The value of a flag is read as pflag reads it.
func TestArgumentOf(t *testing.T) {
	for args, want := range map[string]string{
		"":                            " false",
		"controller --other":          " false",
		"controller --flag=a --other": "a true",
		"controller --flag a":         "a true",
		"controller --flag":           " true",
		"controller --flag --other":   " true",
		"controller --flag=":          " true",
		"controller --flag-b=c":       " false",
	} {
		value, ok := ArgumentOf(strings.Fields(args), "--flag")
		if got := fmt.Sprint(value, " ", ok); got != want {
			t.Errorf("%q: got %q, want %q", args, got, want)
		}
	}
}
