package engine

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain collects garbage less often: a quarter of the processor time of the
// explorations went to it. GOGC in the environment is respected.
func TestMain(m *testing.M) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	os.Exit(m.Run())
}
