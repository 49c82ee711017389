// Package turns shares the workers of the controller between the syncs of sources.
//
// A sync has a turn from [Turns.Begin] to [Turns.End], and works between the two except
// in an [Exchange] with a server.
package turns

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// looksPerWorker is how many syncs there may be for each that works: the others wait for
// Git servers.
const looksPerWorker = 8

// Turns share the goroutines of the controller between namespaces, and let a sync that
// waits for a Git server keep none from working.
//
// A namespace has at most as many syncs as it leaves free for all others. The same bound holds for
// syncs that work. So servers that never answer, and syncs that work for long, delay no other
// tenant.
type Turns struct {
	Limit int // at the same time

	mu      sync.Mutex
	of      map[string]int // syncs, by namespace
	total   int
	waiting []types.NamespacedName // in the order in which they came
	ends    map[types.NamespacedName]context.CancelFunc
	work    work
	alone   work // of one sync
}

// New lets as many syncs of a namespace work at the same time, and twice as many of all together.
func New(concurrent int) *Turns {
	concurrent = max(1, concurrent)
	return &Turns{
		Limit: looksPerWorker * concurrent,
		work:  newWork(2 * concurrent), alone: newLastingWork(1),
		of: map[string]int{}, ends: map[types.NamespacedName]context.CancelFunc{},
	}
}

// Begin begins a sync. It returns false where its namespace has its share: the source is
// then among those that a later end returns.
func (t *Turns) Begin(source types.NamespacedName, end context.CancelFunc) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.mayBegin(source.Namespace) {
		if !slices.Contains(t.waiting, source) {
			t.waiting = append(t.waiting, source)
		}
		return false
	}
	t.of[source.Namespace]++
	t.total++
	t.ends[source] = end
	return true
}

func (t *Turns) mayBegin(namespace string) bool { return t.of[namespace] < t.Limit-t.total }

// End ends a sync, and returns the sources that may have their turn now.
func (t *Turns) End(source types.NamespacedName) []types.NamespacedName {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.ends, source)
	t.total--
	if t.of[source.Namespace]--; t.of[source.Namespace] == 0 {
		delete(t.of, source.Namespace)
	}
	var next []types.NamespacedName
	t.waiting = slices.DeleteFunc(t.waiting, func(w types.NamespacedName) bool {
		if len(next) > 0 || !t.mayBegin(w.Namespace) {
			return false
		}
		next = append(next, w)
		return true
	})
	return next
}

// Cut cuts the sync of a source short that is being deleted.
func (t *Turns) Cut(source types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if end := t.ends[source]; end != nil {
		end()
	}
}

// Spare has the sync of a source end by itself: it is about the deletion.
func (t *Turns) Spare(source types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.ends, source)
}
