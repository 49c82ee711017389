package turns

import (
	"context"
	"slices"
	"time"
)

// work is shared between namespaces. The next sync to work is of the namespace of which the
// fewest work. If there are several such namespaces, the one with the oldest turn comes first.
// A namespace has at most as many as it leaves free, so one with many syncs that work for long
// keeps no other one waiting.
type work struct {
	free    int
	working map[string]int // syncs, by namespace
	waiting []*waiter      // in the order in which they came
	// began is by namespace when it last began to work, for those that work or wait.
	began map[string]int
	turn  int // twice how often one began
	// keeps is true if a namespace whose sync has waited in vain keeps its turn. It comes again.
	keeps bool
}

// waiter is a sync that waits to work.
type waiter struct {
	namespace string
	begins    chan struct{} // closed when it works
}

func newWork(concurrent int) work {
	return work{free: concurrent, working: map[string]int{}, began: map[string]int{}}
}

// newLastingWork keeps the turns of namespaces that come again.
func newLastingWork(concurrent int) work {
	w := newWork(concurrent)
	w.keeps = true
	return w
}

// add has a sync of a namespace work, or wait for that.
func (w *work) add(namespace string) *waiter {
	if _, known := w.began[namespace]; !known {
		w.began[namespace] = w.turn - 1 // before the last one, and after those who have waited for longer
	}
	waits := &waiter{namespace, make(chan struct{})}
	w.waiting = append(w.waiting, waits)
	w.next()
	return waits
}

// end ends the work of a sync of a namespace.
func (w *work) end(namespace string) {
	w.free++
	if w.working[namespace]--; w.working[namespace] == 0 {
		delete(w.working, namespace)
	}
	w.next()
	w.forget(namespace)
}

// leave ends the wait of a sync, or its work.
func (w *work) leave(waits *waiter) {
	if i := slices.Index(w.waiting, waits); i >= 0 {
		w.waiting = slices.Delete(w.waiting, i, i+1)
		switch {
		case !w.keeps:
			w.forget(waits.namespace)
		case w.began[waits.namespace]%2 != 0: // it is as it came, see add
			w.began[waits.namespace]-- // before those that came during the same turn
		}
		return
	}
	w.end(waits.namespace)
}

// next has those work that may.
func (w *work) next() {
	for w.free > 0 && len(w.waiting) > 0 {
		first := 0
		for i, other := range w.waiting {
			if w.isBefore(other.namespace, w.waiting[first].namespace) {
				first = i
			}
		}
		if w.working[w.waiting[first].namespace] >= w.free {
			return // no other one has fewer
		}
		waits := w.waiting[first]
		w.waiting = slices.Delete(w.waiting, first, first+1)
		w.free--
		w.turn += 2
		w.working[waits.namespace]++
		w.began[waits.namespace] = w.turn
		close(waits.begins)
		if w.keeps {
			w.forgetOld()
		}
	}
}

// keptTurns is how many others may begin before a turn that is kept ends.
const keptTurns = 1000

// forgetOld drops namespaces that have not come again.
func (w *work) forgetOld() {
	for namespace, began := range w.began {
		if w.turn-began > 2*keptTurns {
			w.forget(namespace)
		}
	}
}

func (w *work) isBefore(a, b string) bool {
	if w.working[a] != w.working[b] {
		return w.working[a] < w.working[b]
	}
	return w.began[a] < w.began[b]
}

// forget drops a namespace that neither works nor waits.
func (w *work) forget(namespace string) {
	if w.working[namespace] == 0 && !slices.ContainsFunc(w.waiting, func(o *waiter) bool { return o.namespace == namespace }) {
		delete(w.began, namespace)
	}
}

// turnsKey is the key of a context's value: the turns in which the sync works.
type turnsKey struct{}

// syncKey is the key of a context's value: the context that the sync began with.
type syncKey struct{}

// worker is a sync that works in turns.
type worker struct {
	turns     *Turns
	namespace string
}

// Working waits until a sync of a namespace may work. It returns the context of the sync and
// what ends its work.
func (t *Turns) Working(ctx context.Context, namespace string) (context.Context, func(), error) {
	w := worker{t, namespace}
	if err := w.begin(ctx, &t.work); err != nil {
		return ctx, func() {}, err
	}
	return context.WithValue(context.WithValue(ctx, syncKey{}, ctx), turnsKey{}, w), func() { w.end(&t.work) }, nil
}

func (w worker) begin(ctx context.Context, on *work) error {
	w.turns.mu.Lock()
	waits := on.add(w.namespace)
	w.turns.mu.Unlock()
	select {
	case <-waits.begins:
		return nil
	case <-ctx.Done():
		w.turns.mu.Lock()
		defer w.turns.mu.Unlock()
		on.leave(waits)
		return ctx.Err()
	}
}

func (w worker) end(on *work) {
	w.turns.mu.Lock()
	defer w.turns.mu.Unlock()
	on.end(w.namespace)
}

// Exchange runs what waits for a server, while another sync works.
func Exchange[T any](ctx context.Context, f func() (T, error)) (T, error) {
	if w, ok := ctx.Value(turnsKey{}).(worker); ok {
		w.end(&w.turns.work)
		defer func() { _ = w.begin(context.WithoutCancel(ctx), &w.turns.work) }()
	}
	return f()
}

// Alone runs what takes much memory once no other sync does so. Namespaces take turns, so one of
// them keeps another one waiting for one sync at most. It waits for so long at most, and gives f as
// long. A namespace that has waited in vain keeps its turn until it comes again. The time that a
// server has to answer does not count meanwhile. Outside of a sync there is no wait.
func Alone(ctx context.Context, atMost time.Duration, f func(context.Context) error) error {
	w, ok := ctx.Value(turnsKey{}).(worker)
	if !ok {
		return f(ctx)
	}
	ctx, _ = ctx.Value(syncKey{}).(context.Context)
	waiting, end := context.WithTimeout(ctx, atMost)
	defer end()
	if err := w.begin(waiting, &w.turns.alone); err != nil {
		return err
	}
	defer w.end(&w.turns.alone)
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	return f(ctx)
}
