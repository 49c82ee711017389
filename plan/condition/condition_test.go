package condition

import (
	"context"
	"strings"
	"testing"
)

func TestCompile(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"status == 200 && body.failed == 0":         "",
		"body.checks.all(c, c.ok)":                  "",
		"body.?failed.orValue(1) == 0":              "",
		"body.ok":                                   "", // it may be a bool
		"status == '200'":                           "1:8: found no matching overload",
		"status ==":                                 "1:10: Syntax error",
		"status + 1":                                "1:1: the condition is of type int, and must be a bool",
		"stauts == 200":                             "1:1: undeclared reference to 'stauts'",
		"status == 200 &&\n  bodi.failed == 0":      "2:3: undeclared reference to 'bodi'",
		"'a'.matches('(')":                          "1:1: ",
		"timestamp('2026-01-01T00:00:00Z') < now()": "undeclared reference to 'now'", // no clock
	} {
		_, err := Compile(text)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestEval(t *testing.T) {
	t.Parallel()
	long := make([]any, 2_000)
	for i := range long {
		long[i] = int64(i)
	}
	for name, c := range map[string]struct {
		text string
		body any
		want string // true, false, or a part of the error
	}{
		"whole number":           {"body.failed == 0", map[string]any{"failed": int64(0)}, "true"},
		"the same as a fraction": {"body.failed == 0", map[string]any{"failed": 0.0}, "true"},
		"fails":                  {"body.failed == 0", map[string]any{"failed": int64(2)}, "false"},
		"no field":               {"body.failed == 0", map[string]any{}, "no such key"},
		"asked whether it is":    {"has(body.failed) && body.failed == 0", map[string]any{}, "false"},
		"text":                   {"body == 'ok'", "ok", "true"},
		"no bool":                {"body.ok", map[string]any{"ok": "yes"}, "must be a bool"},
		"too costly":             {"body.all(a, body.all(b, a + b >= 0))", long, "cost limit exceeded"},
	} {
		condition, err := Compile(c.text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		holds, err := condition.Eval(context.Background(), 200, c.body)
		switch {
		case c.want == "true" || c.want == "false":
			if err != nil || holds != (c.want == "true") {
				t.Errorf("%s: %t, %v, want %s", name, holds, err, c.want)
			}
		case err == nil || !strings.Contains(err.Error(), c.want):
			t.Errorf("%s: %v, want an error with %q", name, err, c.want)
		}
	}
}
