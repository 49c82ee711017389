package verdict_test

import (
	"testing"
	"time"

	"github.com/tranche-dev/tranche/rollout/engine/verdict"
)

// The windows of the lab are due after 180 s. A message names no time of the past as one to come.
func TestSoFar(t *testing.T) {
	t.Parallel()
	for after, want := range map[time.Duration]string{
		0:                 " is being measured until 00:03:00 UTC: m",
		3 * time.Minute:   " is being measured until 00:03:00 UTC: m", // the answer is under way
		209 * time.Second: " is being measured until 00:03:00 UTC: m",
		210 * time.Second: " has no verdict yet, and should have been measured by 00:03:00 UTC: m",
		48 * time.Hour:    " has no verdict yet, and should have been measured by 00:03:00 UTC: m",
	} {
		m := gauge()
		m.Delay = seconds(0)
		l := newLab(m)
		l.Now, l.Status.Message = began.Add(after), "m"
		if got := l.SoFar(); got != want {
			t.Errorf("after %s: %q", after, got)
		}
	}
	m := gauge()
	m.Delay = seconds(60)
	late := newLab(m)
	late.Now, late.Status.Message = began.Add(4*time.Minute), ""
	if got := late.SoFar(); got != " is being measured until 00:04:00 UTC" {
		t.Errorf("with a delay: %q", got)
	}
	for _, none := range []*verdict.Track{{}, {Step: late.Step}} {
		if got := none.SoFar(); got != " is being measured" {
			t.Errorf("before it begins: %q", got)
		}
	}
}
