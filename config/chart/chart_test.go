package chart

import "testing"

func TestTableOf(t *testing.T) {
	got, err := tableOf([]byte("# About the file.\n\na:\n  # First line\n  # and second.\n  b: {c: [1]}\n# Last.\nd: \"\"\n"))
	want := "| value | default | meaning |\n|---|---|---|\n| `a.b` | `{\"c\":[1]}` | First line and second. |\n| `d` | `\"\"` | Last. |\n"
	if err != nil || string(got) != want {
		t.Errorf("%v: %s", err, got)
	}
	if _, err := tableOf([]byte("a:\n  b: 1\n")); err == nil {
		t.Error("a value without a comment passes")
	}
}
