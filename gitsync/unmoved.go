package gitsync

import (
	"context"
	"errors"
	"time"

	"github.com/tranche-dev/tranche/gitsync/footprint"
	"github.com/tranche-dev/tranche/gitsync/outcome"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// tenths is the part of an interval by which a list may be old that sources share. The next
// interval begins with the list, so that drift is found within one.
const tenths = 10

// errToRead says that a source has to be synced as a whole when its interval is over.
var errToRead = errors.New("more than versions is to be read")

// unmoved reports an error unless the cluster has of an up-to-date source what was applied.
// Else it returns the sync with the next interval. Lists of versions answer for all sources of
// an account in a namespace.
func unmoved(ctx context.Context, src *source) (*lastSync, error) {
	last := *src.cached.last
	if !last.versionsTell(src.gs) || !src.cached.executed.DryRuns.Counts(last.interval) {
		return nil, errToRead
	}
	as, err := src.clients.As(src.gs.Namespace, src.gs.Spec.ServiceAccountName)
	if err != nil {
		return nil, err
	}
	begun, err := last.footprint.Holds(ctx, footprint.Reading{
		Shared: src.lists, As: as, Account: src.clients.User(src.gs.Namespace, src.gs.Spec.ServiceAccountName),
		Since: time.Now().Add(-last.interval / tenths), Known: src.cache.known, Spread: src.cache.spread,
	})
	if err != nil {
		return nil, err
	}
	last.until = begun.Add((&outcome.Outcome{}).Next(src.gs))
	return &last, nil
}

// versionsTell reports whether versions say all that a whole sync would find out.
func (r *lastSync) versionsTell(gs *v1alpha1.GitSource) bool {
	w := gs.Spec.WriteBack
	return r.footprint != nil && r.version == gs.ResourceVersion &&
		len(gs.Spec.DependsOn) == 0 && (w == nil || !w.Enabled && !w.Notes) &&
		len(gs.Status.Kept) == 0
}
