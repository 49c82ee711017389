package contest

import (
	"testing"
	"time"
)

// The first change is reverted at once. One that comes again after each revert stays
// twice as long each time, at most five minutes. After a quiet time it is the first
// again.
func TestContest(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	var c Contest
	var stayed []time.Duration
	for range 12 {
		due := c.Due(now)
		stayed = append(stayed, due)
		now = now.Add(due)
		c = c.Revert(now, "spec.a was changed by b")
		now = now.Add(time.Millisecond) // the other writer answers
	}
	want := []time.Duration{0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300}
	for i, d := range stayed {
		if got := d.Round(time.Second); got != want[i]*time.Second {
			t.Errorf("change %d stays %s, want %d s", i, got, want[i])
		}
	}
	if !c.Goes(now) || (Contest{}).Goes(now) || (Contest{}).Revert(now, "").Goes(now) {
		t.Error("one change is no contest, and twelve are")
	}
	now = now.Add(2*longestPause + time.Second)
	if c.Due(now) != 0 || c.Goes(now) || c.Revert(now, "").Reverts != 1 {
		t.Errorf("it is not forgotten: %s", c.Due(now))
	}
}
