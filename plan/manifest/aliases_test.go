package manifest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/plan/manifest"
)

func TestCheckAliases(t *testing.T) {
	laughs := "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c <= 'i'; c++ {
		laughs += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c, ", c-1), 10), ", "))
	}
	for _, tt := range []struct {
		reason, content string
		wrong           bool
	}{
		{"no aliases", strings.Repeat("a: b\n---\n", 1000), false},
		{"an ampersand and a star in text", "a: R&D *\n", false},
		{"what aliases are for", "a: &a {b: c}\nd: *a\n", false},
		{"a billion laughs", laughs, true},
		{"in the second document", "a: b\n---\n" + laughs, true},
		{"as a merge", "a: &a {x: [" + strings.Repeat("y, ", 100_000) + "]}\n" + strings.Repeat("b: {<<: *a}\n", 9), true},
		{"a large text", "a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a, ", 9) + "]\n", true},
		{"an anchor that holds itself is for the reader to refuse", "a: &a [*a]\n", false},
		{"not YAML", "&*[", false},
	} {
		if err := manifest.CheckAliases([]byte(tt.content)); (err != nil) != tt.wrong {
			t.Errorf("%s: %v", tt.reason, err)
		}
	}
	if err := manifest.CheckAliases([]byte("a: b\n---\n" + laughs)); err == nil || !strings.Contains(err.Error(), "line 2: ") {
		t.Errorf("%v does not say where", err)
	}
}
