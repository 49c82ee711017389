package gitsync

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tranche-dev/tranche/gitsync/footprint"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

const (
	// tenths is the part of an interval by which a list may be old that sources share. The next
	// interval begins with the list, so that drift is found within one.
	tenths = 10
	// wholeAfter is the time after which a source is synced as a whole although its objects have
	// the versions that were applied. Schemas, policies and rights may have changed.
	wholeAfter = time.Hour
	// wholeAfterIntervals is the same as a number of intervals. The longer of the two counts.
	wholeAfterIntervals = 10
)

// errToRead says that a source has to be synced as a whole when its interval is over.
var errToRead = errors.New("more than versions is to be read")

// unmoved reports an error unless the cluster has of an up-to-date source what was applied.
// Else the next interval begins. Lists of versions answer for all sources of an account in a
// namespace.
func (l *look) unmoved(ctx context.Context) (err error) {
	rest := *l.keep.rest
	if !rest.versionsTell(l.gs) {
		return errToRead
	}
	if l.as, err = l.clients.As(l.gs.Namespace, l.gs.Spec.ServiceAccountName); err != nil {
		return err
	}
	begun, err := rest.footprint.Holds(ctx, footprint.Reading{
		Shared: l.shared, As: l.as, Account: l.clients.User(l.gs.Namespace, l.gs.Spec.ServiceAccountName),
		Since: time.Now().Add(-rest.interval / tenths), Known: l.known,
	})
	if err != nil {
		return err
	}
	rest.until = begun.Add(l.outcome.Next(l.gs))
	l.keep.rest = &rest
	return nil
}

// versionsTell reports whether versions say all that a whole sync would find out.
func (r *atRest) versionsTell(gs *v1alpha1.GitSource) bool {
	w := gs.Spec.WriteBack
	return r.footprint != nil && r.version == gs.ResourceVersion &&
		len(gs.Spec.DependsOn) == 0 && (w == nil || !w.Enabled && !w.Notes) &&
		len(gs.Status.Kept) == 0 && time.Since(r.whole) < max(wholeAfter, wholeAfterIntervals*r.interval)
}

// known returns how many objects of a kind in a namespace all up-to-date sources have applied.
func (r *reconciler) known(gvk schema.GroupVersionKind, namespace string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, m := range r.last {
		if m.rest != nil && m.rest.footprint != nil {
			n += m.rest.footprint.Count(gvk, namespace)
		}
	}
	return n
}
