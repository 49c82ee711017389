package desired

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// The list of tips is bounded, and what is dropped never makes a first sight earlier.
func TestSeenIsBounded(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	var seen []v1alpha1.SeenCommit
	first := map[string]time.Time{}
	var tips []string
	for i := range 20_000 {
		tip := fmt.Sprintf("%040x", i)
		seen = WithSeen(seen, now, tip)
		first[tip], tips = now, append(tips, tip)
		if seen[0].Commit != tip {
			t.Fatalf("the newest tip is not in the list: %+v", seen[0])
		}
		now = now.Add(7 * time.Minute)
	}
	if n := len(seen); n > maxSeen || n < maxSeen-1 {
		t.Errorf("%d tips are kept of %d", n, len(tips))
	}
	again := WithSeen(seen, now, seen[5].Commit)
	if !slices.Equal(again, seen) {
		t.Error("a tip that is known was added")
	}
	whole := 0
	for i, s := range seen {
		if !s.Time.Time.Equal(first[s.Commit]) {
			t.Errorf("%s was seen at %s, and the list has %s", s.Commit, first[s.Commit], s.Time)
		}
		if i > 0 && s.Time.After(seen[i-1].Time.Time) {
			t.Fatalf("%d is out of order", i)
		}
		if now.Sub(s.Time.Time) <= seenWhole {
			whole++
		}
	}
	if want := int(seenWhole / (7 * time.Minute)); whole != want {
		t.Errorf("of the last day %d tips are kept, want all %d", whole, want)
	}
}
