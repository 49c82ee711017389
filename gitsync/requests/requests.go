package requests

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tranche-dev/tranche/plan"
)

// Request is why a source is to be synced.
type Request struct {
	// Since is the time of the request: what the server had said before is too old.
	Since time.Time
	// Whole: the cluster is to be read, too, whatever the branch says. Else
	// there may have been a push, and that is all.
	Whole bool
	// Asked: a user asked for a whole sync.
	Asked bool
	// Elapsed: the interval is over, and nothing else has happened.
	Elapsed bool
}

// Pending has the requests that wait for a sync, by source. A thousand
// sources of one repository may be notified of a push at the same time. They need one
// answer of its server, and what the push does not touch needs nothing of the cluster.
type Pending struct {
	mu sync.Mutex
	by map[types.NamespacedName]Request
}

// Add adds a request for a source to the one that waits, if any does.
func (p *Pending) Add(source types.NamespacedName, whole bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.by == nil {
		p.by = map[types.NamespacedName]Request{}
	}
	whole = whole || p.by[source].Whole
	p.by[source] = Request{Since: time.Now(), Whole: whole, Asked: whole}
}

// Take returns the request of a source that waits, and ends its wait.
func (p *Pending) Take(source types.NamespacedName) (Request, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	request, ok := p.by[source]
	delete(p.by, source)
	return request, ok
}

// Watches maps what happens to objects to the sources that are to be synced.
type Watches struct {
	Client client.Reader
	// Pending has what is requested.
	Pending *Pending
	// Selects reports whether a source is this controller's to sync.
	Selects func(client.Object) bool
	// Applied returns what of a commit a source has applied, and which of its entries had an
	// autoscaler. It returns nil before the first sync.
	Applied func(source types.NamespacedName) (*plan.Set, map[string]bool)
	// Installing reports whether the last sync of a source has installed its plans, with no
	// approval to judge.
	Installing func(source types.NamespacedName) bool
	// Cut cuts the sync of a source short.
	Cut func(source types.NamespacedName)
}

// Request returns a handler that requests syncs of the sources of an object, as a whole or
// not.
func (w *Watches) Request(whole bool, sources handler.MapFunc) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		requests := sources(ctx, o)
		for _, request := range requests {
			w.Pending.Add(request.NamespacedName, whole)
		}
		return requests
	})
}

// Changes returns a handler that requests syncs of the sources that change, and cuts the sync of
// one short that is deleted. A source that gets its finalizer while it is deleted may be gone
// without a deletionTimestamp: the API server has looked at the finalizers before.
func (w *Watches) Changes() handler.EventHandler {
	h := w.Request(true, func(ctx context.Context, o client.Object) []reconcile.Request {
		if o.GetDeletionTimestamp() != nil {
			w.Cut(client.ObjectKeyFromObject(o))
		}
		return Itself(ctx, o)
	})
	gone := func(ctx context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		w.Cut(client.ObjectKeyFromObject(e.Object))
		h.Delete(ctx, e, q)
	}
	return handler.Funcs{CreateFunc: h.Create, UpdateFunc: h.Update, DeleteFunc: gone, GenericFunc: h.Generic}
}

// Itself maps a source to itself.
func Itself(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
}
