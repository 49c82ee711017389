package rollout

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

// failures counts the rounds of each release that have failed since the last good
// one.
type failures struct {
	mu sync.Mutex
	of map[types.NamespacedName]*failure
}

type failure struct {
	since time.Time
	count int
	// reported: log and events have said so.
	reported bool
}

// trouble is what a round means for the release.
type trouble int

const (
	noTrouble trouble = iota
	begun             // the first failure since the last good round
	goesOn            // another one, or a conflict
	persists          // rounds have failed for so long that the release is stuck
	recovered         // a good round after failures
)

// note notes how a round ended. A conflict is no failure by itself: it means that
// something else moves.
func (f *failures) note(release types.NamespacedName, err error, now time.Time) trouble {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.of[release]
	if err == nil {
		delete(f.of, release)
		if at != nil && at.reported {
			return recovered
		}
		return noTrouble
	}
	if at == nil {
		at = &failure{since: now}
		f.of[release] = at
	}
	at.count++
	switch {
	case now.Sub(at.since) >= persistent && !apierrors.IsConflict(err):
		at.reported = true
		return persists
	case !at.reported && !apierrors.IsConflict(err) && !errors.Is(err, errLookAgain):
		at.reported = true
		return begun
	}
	return goesOn
}

// rateLimiter spaces the rounds of a release whose requests fail, and with them the
// lines of the log. An outage of the API server costs each release a round every half
// minute.
func rateLimiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](2*lookAgain, longestBackoff)
}

// backoff is how long to wait after so many failures.
func (f *failures) backoff(release types.NamespacedName) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.of[release]
	if at == nil {
		return lookAgain
	}
	return min(lookAgain<<min(at.count-1, 20), longestBackoff)
}

// forget drops a release that is gone.
func (f *failures) forget(release types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.of, release)
}
