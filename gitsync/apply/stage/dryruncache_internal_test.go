package stage

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Dry runs count for an hour and for ten intervals, but none after a change of the source or if a user
// asks.
func TestDryRunCache_Valid(t *testing.T) {
	for _, tc := range []struct {
		why           string
		interval, old time.Duration
		path          string
		asked, want   bool
	}{
		{why: "just now", interval: time.Minute, want: true},
		{why: "within an hour", interval: time.Minute, old: 59 * time.Minute, want: true},
		{why: "after an hour", interval: time.Minute, old: 61 * time.Minute},
		{why: "within ten intervals", interval: time.Hour, old: 599 * time.Minute, want: true},
		{why: "after ten intervals", interval: time.Hour, old: 601 * time.Minute},
		{why: "a user asks", interval: time.Minute, asked: true},
		{why: "another path", interval: time.Minute, path: "other"},
	} {
		gs := &v1alpha1.GitSource{Spec: v1alpha1.GitSourceSpec{Interval: metav1.Duration{Duration: tc.interval}}}
		s := DryRunCache{spec: apply.Digest(&gs.Spec), since: time.Now().Add(-tc.old), passed: map[string]string{"a": "b"}}
		gs.Spec.Path = tc.path
		now := s.Valid(gs, tc.asked)
		if got := len(now.passed) > 0; got != tc.want {
			t.Errorf("%s: %t", tc.why, got)
		}
		if !now.Counts(tc.interval) {
			t.Errorf("%s: it does not count from now on", tc.why)
		}
	}
}
