package cli

import (
	"testing"
	"time"

	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
)

// When --since is.
func TestSince(t *testing.T) {
	for text, want := range map[string]string{
		"": "0001-01-01T00:00:00Z", "90m": "2026-07-01T10:30:00Z", "2d": "2026-06-29T12:00:00Z", "2026-06-30": "2026-06-30T00:00:00Z",
		"2026-06-30T08:00:00+02:00": "2026-06-30T06:00:00Z", "-5m": "", "yesterday": "", "d": "", "99999999d": "",
	} {
		got, err := ParseSince(text, clitest.Noon)
		if (err == nil) != (want != "") || err == nil && got.UTC().Format(time.RFC3339) != want {
			t.Errorf("%q: %s, %v; want %q", text, got, err, want)
		}
	}
}
