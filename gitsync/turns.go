package gitsync

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/gitsync/gitserver"
)

// looksPerWorker is how many syncs there may be for each that works: the others wait for
// Git servers.
const looksPerWorker = 8

// turns share the goroutines of the controller between namespaces, and let a sync that
// waits for a Git server keep none from working.
//
// A namespace has at most as many syncs as it leaves free for all others. So servers that
// never answer, of one tenant or of some, delay no other tenant.
type turns struct {
	looks int           // at the same time
	work  chan struct{} // what a sync holds while it works

	mu      sync.Mutex
	of      map[string]int // syncs, by namespace
	total   int
	waiting []types.NamespacedName // in the order in which they came
	ends    map[types.NamespacedName]context.CancelFunc
}

// newTurns lets as many syncs work at the same time.
func newTurns(concurrent int) *turns {
	concurrent = max(1, concurrent)
	return &turns{
		looks: looksPerWorker * concurrent, work: make(chan struct{}, concurrent),
		of: map[string]int{}, ends: map[types.NamespacedName]context.CancelFunc{},
	}
}

// begin begins a sync. It returns false where its namespace has its share: the source is
// then among those that a later end returns.
func (t *turns) begin(source types.NamespacedName, end context.CancelFunc) bool {
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

func (t *turns) mayBegin(namespace string) bool { return t.of[namespace] < t.looks-t.total }

// end ends a sync, and returns the sources that may have their turn now.
func (t *turns) end(source types.NamespacedName) []types.NamespacedName {
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

// cut cuts the sync of a source short that is being deleted.
func (t *turns) cut(source types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if end := t.ends[source]; end != nil {
		end()
	}
}

// spare has the sync of a source end by itself: it is about the deletion.
func (t *turns) spare(source types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.ends, source)
}

// turnsKey is the key of a context's value: the turns in which the sync works.
type turnsKey struct{}

// working waits until a sync may work, and returns the context of the sync and what ends
// its work.
func (t *turns) working(ctx context.Context) (context.Context, func(), error) {
	select {
	case t.work <- struct{}{}:
		return context.WithValue(ctx, turnsKey{}, t), func() { <-t.work }, nil
	case <-ctx.Done():
		return ctx, func() {}, ctx.Err()
	}
}

// exchange runs what waits for a server, while another sync works.
func exchange[T any](ctx context.Context, f func() (T, error)) (T, error) {
	if t, ok := ctx.Value(turnsKey{}).(*turns); ok {
		<-t.work
		defer func() { t.work <- struct{}{} }()
	}
	return f()
}

// push is [gitserver.Remote.Push], while another sync works.
func push(ctx context.Context, r gitserver.Remote, u gitserver.Update, timeout time.Duration) error {
	_, err := exchange(ctx, func() (any, error) { return nil, r.Push(ctx, u, timeout) })
	return err
}
