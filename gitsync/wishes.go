package gitsync

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A `wish` is a sync request: why a source is to be synced.
type wish struct {
	// since is the time of the request: what the server had said before is too old.
	since time.Time
	// whole: the cluster is to be read, too, whatever the branch says. Else
	// there may have been a push, and that is all.
	whole bool
	// asked: a user asked for a whole sync.
	asked bool
	// elapsed: the interval is over, and nothing else has happened.
	elapsed bool
}

// The type `wishes` has the requests that wait for a sync, by source. A thousand
// sources of one repository may be notified of a push at the same time. They need one
// answer of its server, and what the push does not touch needs nothing of the cluster.
type wishes struct {
	mu sync.Mutex
	by map[types.NamespacedName]wish
}

func (w *wishes) add(source types.NamespacedName, whole bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.by == nil {
		w.by = map[types.NamespacedName]wish{}
	}
	whole = whole || w.by[source].whole
	w.by[source] = wish{since: time.Now(), whole: whole, asked: whole}
}

func (w *wishes) take(source types.NamespacedName) (wish, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wanted, ok := w.by[source]
	delete(w.by, source)
	return wanted, ok
}

// wishing maps what happened to sources to sync, as a whole or not.
func (r *reconciler) wishing(whole bool, sources handler.MapFunc) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		requests := sources(ctx, o)
		for _, request := range requests {
			r.wishes.add(request.NamespacedName, whole)
		}
		return requests
	})
}

// cutDeleted maps a source to itself, and cuts the sync of one short that is deleted.
func (r *reconciler) cutDeleted(ctx context.Context, o client.Object) []reconcile.Request {
	if o.GetDeletionTimestamp() != nil {
		r.turns.Cut(client.ObjectKeyFromObject(o))
	}
	return itself(ctx, o)
}

// itself maps a source to itself.
func itself(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
}

// sharedFor is how old an answer of the server may be for a sync that runs because the
// interval is over. It is a tenth of the interval, at most sharedAtMost.
func sharedFor(interval time.Duration) time.Duration { return min(interval/10, sharedAtMost) }

const sharedAtMost = 30 * time.Second

// wanted says what a sync is for. A sync without a request runs since time has passed.
func (r *reconciler) wanted(source types.NamespacedName, keep memory) wish {
	w, wished := r.wishes.take(source)
	now := time.Now()
	switch {
	case wished && keep.rest != nil && now.Before(keep.rest.until):
		return w
	case wished:
		return wish{since: w.since, whole: true, asked: w.asked}
	case keep.rest == nil: // something is not over yet
		return wish{since: now.Add(-keep.awaiting), whole: true}
	case now.Before(keep.rest.until):
		return wish{since: keep.rest.since}
	default:
		return wish{since: now.Add(-sharedFor(keep.rest.interval)), whole: true, elapsed: true}
	}
}
