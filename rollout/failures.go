package rollout

import (
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// lookAgain is how long a round that met another state than it had observed
	// waits at first; what changed usually asks for a round by itself before that.
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
	// stopped: the last round could not write, and not for a conflict.
	stopped bool
}

// persist notes how a round ended, and reports whether rounds have failed for so
// long that the release is stuck. A conflict is no failure by itself: it means
// that something else moves.
func (f *failures) persist(release types.NamespacedName, err error, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		delete(f.of, release)
		return false
	}
	at := f.of[release]
	if at == nil {
		at = &failure{since: now}
		f.of[release] = at
	}
	at.count++
	at.stopped = !apierrors.IsConflict(err) && !errors.Is(err, errLookAgain)
	return now.Sub(at.since) >= persistent && !apierrors.IsConflict(err)
}

// stopped reports whether the last round of a release could not write: what did not
// move in that time did not fail.
func (f *failures) stopped(release types.NamespacedName) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.of[release]
	return at != nil && at.stopped
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
