package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

// What lint prints: all at once, with file and line.
func TestLint(t *testing.T) {
	for _, name := range []string{"folder", "alone"} {
		path := filepath.Join("testdata", "lint", "bad")
		if name == "alone" {
			path = filepath.Join(path, "release.yaml")
		}
		var out bytes.Buffer
		root := newRoot()
		root.SetArgs([]string{"lint", path})
		root.SetOut(&out)
		if err := root.Execute(); err == nil || !strings.HasPrefix(err.Error(), "problems: ") {
			t.Errorf("%s: %v", name, err)
		}
		golden(t, filepath.Join("testdata", "lint", name+".txt"), out.String())
	}
	for _, path := range []string{"../../examples/web", "../../examples/web/release.yaml", "../../examples/shop/overlays/production"} {
		var out bytes.Buffer
		if n, err := lint(&out, path, "default"); n != 0 || err != nil {
			t.Errorf("%s: %d problems, %v:\n%s", path, n, err, out.String())
		}
	}
	if _, err := lint(&bytes.Buffer{}, "nowhere", "default"); err == nil {
		t.Error("a path that is not there passes")
	}
}
