package controller

import "testing"

func TestGarbagePercent(t *testing.T) {
	for _, tc := range []struct {
		reason string
		live   uint64
		busy   bool
		want   int
	}{
		{"idle, a small heap", 20 << 20, false, gcPercent},
		{"at work, a small heap", 20 << 20, true, busyPercent},
		{"at work, no live heap known", 0, true, busyPercent},
		{"at work, half of the room", busyHeap / 2, true, 100},
		{"at work, two thirds of the room", busyHeap / 3 * 2, true, 50},
		{"at work, nearly all of the room", busyHeap - 1, true, gcPercent},
		{"at work, a large heap", 4 * busyHeap, true, gcPercent},
	} {
		if got := garbagePercent(tc.live, tc.busy); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.reason, got, tc.want)
		}
	}
}
