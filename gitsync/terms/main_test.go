package terms

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain collects garbage less often: a fifth of the processor time of the adversary went
// to it. GOGC in the environment is respected.
func TestMain(m *testing.M) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	os.Exit(m.Run())
}
