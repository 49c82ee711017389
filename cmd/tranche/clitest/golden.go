// Package clitest has what the tests of several commands share: files of what commands
// print, releases and sources in certain states, and clones.
package clitest

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "write what commands print to testdata; only commit the changes if you understand them")

// Golden compares what a command has printed with a file.
func Golden(t testing.TB, file, got string) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got), -rewrite to accept:\n%s", file, diff)
	}
}
