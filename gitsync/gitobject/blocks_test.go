package gitobject

import (
	"strings"
	"testing"
)

// A manifest has one form, however it is written.
func TestBlocks(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ text, want string }{
		"flow":       {"a: [1, {b: 2,\n c: 'x'}] # why\n", "a:\n  - 1\n  - b: 2\n    c: 'x'\n"},
		"JSON":       {`{"a": {"b": ["c", true]}}`, "\"a\":\n  \"b\":\n    - \"c\"\n    - true\n"},
		"aliases":    {"a: &x [1]\nb: *x\n", "a:\n  - 1\nb:\n  - 1\n"},
		"documents":  {"a: 1\n---\nb: {}\n", "a: 1\n---\nb: {}\n"},
		"a patch":    {"patch: '[{\"op\": \"add\", \"path\": \"/a\"}]'\n", "patch: |\n  - \"op\": \"add\"\n    \"path\": \"/a\"\n"},
		"a string":   {"x: '[{\"op\": \"add\"}]'\n", "x: '[{\"op\": \"add\"}]'\n"},
		"line ends":  {"a: 1\r\nb: 2\r\n", "a: 1\nb: 2\n"},
		"folded":     {"a: >-\n  x\n\n  y\n", "a: |-\n  x\n  y\n"},
		"a scalar":   {"a text\n", ""},
		"properties": {"a=1\nb=2\n", ""},
		"nothing":    {"", ""},
		"no YAML":    {"a: [\n", ""},
		"a bomb":     {"a: &a [1]\n" + bomb(), ""},
		"a circle":   {"a: &a [*a]\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := Blocks([]byte(tt.text))
			if string(got) != tt.want || ok != (tt.want != "") {
				t.Fatalf("%t:\n%s", ok, got)
			}
			if again, _ := Blocks(got); ok && string(again) != string(got) {
				t.Errorf("again:\n%s", again)
			}
		})
	}
}

// bomb are aliases of aliases.
func bomb() string {
	var b strings.Builder
	for c := byte('b'); c < 'h'; c++ {
		one := "*" + string(c-1) + ", "
		b.WriteString(string(c) + ": &" + string(c) + " [" + strings.Repeat(one, 20) + "1]\n")
	}
	return b.String()
}
