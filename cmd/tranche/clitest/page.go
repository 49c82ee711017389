package clitest

import (
	"os"
	"os/exec"
	"path/filepath"
)

// PageTests in the environment makes a missing browser a failure. `.ci/run` sets it.
const PageTests = "TRANCHE_PAGE_TESTS"

// Chromium returns the browser of the tests: that of CHROMIUM in the environment, or
// Debian's.
func Chromium() string {
	if path := os.Getenv("CHROMIUM"); path != "" {
		return path
	}
	return "/usr/bin/chromium"
}

// MissingForPage returns what the tests of the page need and is not there; empty: nothing.
// web is the folder of the page.
func MissingForPage(web string) string {
	if _, err := exec.LookPath("node"); err != nil {
		return "node"
	}
	if _, err := os.Stat(filepath.Join(web, "node_modules", "playwright-core")); err != nil {
		return filepath.Join(web, "node_modules") + " (make page)"
	}
	if _, err := os.Stat(Chromium()); err != nil {
		return Chromium()
	}
	return ""
}
