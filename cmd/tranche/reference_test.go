package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
)

// docs/cli.md is what the code says.
func TestReference(t *testing.T) {
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	got := reference(newRoot())
	if strings.Contains(got, cache) {
		t.Error("it names a folder of this machine")
	}
	clitest.Golden(t, filepath.Join("..", "..", "docs", "cli.md"), got)
}
