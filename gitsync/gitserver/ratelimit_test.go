package gitserver

import (
	"testing"
	"time"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"120": 2 * time.Minute, "0": 0, "-5": 0, "": 0, "soon": 0, "99999999999": longestLimit,
		"Thu, 01 Jan 2026 12:05:00 GMT": 5 * time.Minute, "Thu, 01 Jan 2026 11:00:00 GMT": 0, "Fri, 02 Jan 2026 12:00:00 GMT": longestLimit,
	} {
		if got := retryAfter(header, now); got != want {
			t.Errorf("Retry-After: %q is %s, want %s", header, got, want)
		}
	}
}
