package failures

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A failure is reported once until a round is good, and once more when it persists.
func TestNote(t *testing.T) {
	failed, conflict := errors.New("500"), apierrors.NewConflict(schema.GroupResource{Resource: "replicasets"}, "web", errors.New("changed"))
	release := types.NamespacedName{Namespace: "shop", Name: "web"}
	for _, tc := range []struct {
		reason string
		errs   []error // a second after each other
		gap    time.Duration
		want   []Trouble
	}{
		{"nothing has failed", []error{nil, nil}, 0, []Trouble{None, None}},
		{"a conflict is no failure", []error{conflict, ErrChanged, nil}, 0, []Trouble{GoesOn, GoesOn, None}},
		{"the first failure is reported, and its end", []error{failed, failed, failed, nil, nil}, 0,
			[]Trouble{Begins, GoesOn, GoesOn, Recovered, None}},
		{"each outage is reported", []error{failed, nil, failed}, 0, []Trouble{Begins, Recovered, Begins}},
		{"the first failure after a conflict", []error{conflict, failed, failed}, 0, []Trouble{GoesOn, Begins, GoesOn}},
		{"a minute is too long", []error{failed, failed, conflict}, time.Minute, []Trouble{Begins, Persists, GoesOn}},
	} {
		f := New()
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		var got []Trouble
		for _, err := range tc.errs {
			got = append(got, f.Note(release, err, now))
			now = now.Add(time.Second + tc.gap)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// A release whose requests fail is tried less and less often.
func TestRateLimiter(t *testing.T) {
	limiter := RateLimiter()
	var total time.Duration
	tries := 0
	for ; total < time.Minute; tries++ {
		total += limiter.When(reconcile.Request{})
	}
	if tries > 10 {
		t.Errorf("%d tries in the first minute", tries)
	}
	if d := limiter.When(reconcile.Request{}); d != longestBackoff {
		t.Errorf("then every %s", d)
	}
}
