// Package trials spaces the tries of writes that are made in vain, and cost pods or a hold each time.
package trials

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

const (
	// first is how long a release waits after a write in vain. Each further one doubles it,
	// to longest.
	first   = time.Minute
	longest = time.Hour
)

// Trials remembers, by release, the last write in vain, what came of it, and when the next
// one may be made. It is safe for use by several goroutines.
type Trials[E error] struct {
	mu sync.Mutex
	of map[types.NamespacedName]trial[E]
}

type trial[E error] struct {
	about string // what the release was then
	came  E
	until time.Time
	wait  time.Duration
}

// New returns trials without any.
func New[E error]() *Trials[E] { return &Trials[E]{of: map[types.NamespacedName]trial[E]{}} }

// Note notes a write in vain.
func (t *Trials[E]) Note(br *v1alpha1.BatchRelease, came E, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := client.ObjectKeyFromObject(br)
	wait := first
	if last, ok := t.of[key]; ok && last.about == about(br) {
		wait = min(2*last.wait, longest)
	}
	t.of[key] = trial[E]{about: about(br), came: came, until: now.Add(wait), wait: wait}
}

// Last returns what came of the last write in vain, and whether the next one has to wait.
func (t *Trials[E]) Last(br *v1alpha1.BatchRelease, now time.Time) (came E, waits bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := client.ObjectKeyFromObject(br)
	last, ok := t.of[key]
	if !ok {
		return came, false
	}
	if last.about != about(br) { // and is forgotten: a rollback takes its annotation off again
		delete(t.of, key)
		return came, false
	}
	return last.came, now.Before(last.until)
}

// about is what a user changes of a BatchRelease: spec or annotations.
func about(br *v1alpha1.BatchRelease) string {
	return fmt.Sprint(br.UID, br.Generation, br.Annotations)
}

// Forget forgets the writes of a release: it is gone, or one was not in vain.
func (t *Trials[E]) Forget(release types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.of, release)
}
