// Package share keeps the releases of one namespace from taking all reconciliations that run at
// the same time. Its writes may all be slow, as behind an admission webhook for that namespace.
package share

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Reconciler lets a namespace have at most as many reconciliations at a time as it leaves free
// for all others. A request beyond that waits, outside the queue, until others end.
type Reconciler struct {
	reconcile.Reconciler
	limit int // of all namespaces

	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	total int
	of    map[string]*namespace
}

type namespace struct {
	running int                 // with those whose turn has come
	waiting []reconcile.Request // longest wait first
	turn    map[reconcile.Request]turn
}

// turn is that of a request which had to wait.
type turn bool

const (
	waits turn = false
	comes turn = true // it has its place, and goes through the queue once more
)

// New returns r with shares of so many reconciliations. [Reconciler.Source] must be a source
// of the same controller.
func New(r reconcile.Reconciler, concurrent int) *Reconciler {
	return &Reconciler{Reconciler: r, limit: concurrent, of: map[string]*namespace{}}
}

// Source puts requests that have waited back into the controller's queue.
func (s *Reconciler) Source() source.Source {
	return source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.queue = q
		return nil
	})
}

// Reconcile reconciles at once, or lets the request wait.
func (s *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !s.begin(req) {
		return reconcile.Result{}, nil
	}
	defer s.end(req)
	return s.Reconciler.Reconcile(ctx, req)
}

// begin lets no request pass those of its namespace that wait.
func (s *Reconciler) begin(req reconcile.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.of[req.Namespace]
	if n == nil {
		n = &namespace{turn: map[reconcile.Request]turn{}}
		s.of[req.Namespace] = n
	}
	t, known := n.turn[req]
	switch {
	case known && t == comes:
		delete(n.turn, req)
		return true
	case known:
		return false
	case len(n.waiting) == 0 && s.mayBegin(n):
		s.take(n)
		return true
	default:
		n.waiting = append(n.waiting, req)
		n.turn[req] = waits
		return false
	}
}

func (s *Reconciler) mayBegin(n *namespace) bool { return n.running < s.limit-s.total }

func (s *Reconciler) take(n *namespace) {
	n.running++
	s.total++
}

// end gives the places that are free now to those who have waited longest.
func (s *Reconciler) end(req reconcile.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[req.Namespace].running--
	s.total--
	for name, n := range s.of {
		switch {
		case len(n.waiting) > 0 && s.mayBegin(n):
			next := n.waiting[0]
			n.waiting = n.waiting[1:]
			n.turn[next] = comes
			s.take(n)
			s.queue.Add(next)
		case len(n.waiting) == 0 && n.running == 0:
			delete(s.of, name)
		}
	}
}
