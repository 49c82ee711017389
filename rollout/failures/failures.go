package failures

import (
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// lookAgain is how long a round that met another state than it had observed waits at
	// first. The change usually asks for a round by itself before that.
	lookAgain = 100 * time.Millisecond
	// longestBackoff is how long it waits at most.
	longestBackoff = 30 * time.Second
	// persistent is for how long the rounds of a release may fail before its
	// status says so.
	persistent = time.Minute
)

// ErrChanged says that an object is not as a round has observed it: the next round looks again.
var ErrChanged = errors.New("not as observed")

// Count has the rounds of each release that have failed since the last good one. It is safe for
// use by several goroutines.
type Count struct {
	mu sync.Mutex
	of map[types.NamespacedName]*failure
}

// New returns a count of no failures.
func New() *Count { return &Count{of: map[types.NamespacedName]*failure{}} }

type failure struct {
	since time.Time
	count int
	// reported: log and events have said so.
	reported bool
}

// Trouble is what a round means for the release.
type Trouble int

const (
	None      Trouble = iota
	Begins            // the first failure since the last good round
	GoesOn            // another one, or a conflict
	Persists          // rounds have failed for so long that the release is stuck
	Recovered         // a good round after failures
)

// Note notes how a round ended. A conflict is no failure by itself: it means that
// something else moves.
func (f *Count) Note(release types.NamespacedName, err error, now time.Time) Trouble {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.of[release]
	if err == nil {
		delete(f.of, release)
		if at != nil && at.reported {
			return Recovered
		}
		return None
	}
	if at == nil {
		at = &failure{since: now}
		f.of[release] = at
	}
	at.count++
	switch {
	case now.Sub(at.since) >= persistent && !apierrors.IsConflict(err):
		at.reported = true
		return Persists
	case !at.reported && !apierrors.IsConflict(err) && !errors.Is(err, ErrChanged):
		at.reported = true
		return Begins
	}
	return GoesOn
}

// RateLimiter spaces the rounds of a release whose requests fail, and with them the
// lines of the log. An outage of the API server costs each release a round every half
// minute.
func RateLimiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](2*lookAgain, longestBackoff)
}

// Backoff is how long to wait after so many failures.
func (f *Count) Backoff(release types.NamespacedName) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.of[release]
	if at == nil {
		return lookAgain
	}
	return min(lookAgain<<min(at.count-1, 20), longestBackoff)
}

// Forget drops a release that is gone.
func (f *Count) Forget(release types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.of, release)
}
