package gitsync

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/gitsync/requests"
)

// sharedFor is how old an answer of the server may be for a sync that runs because the
// interval is over. It is a tenth of the interval, at most sharedAtMost.
func sharedFor(interval time.Duration) time.Duration { return min(interval/10, sharedAtMost) }

const sharedAtMost = 30 * time.Second

// nextRequest says what a sync is for. A sync without a request runs since time has passed.
func nextRequest(pending *requests.Pending, source types.NamespacedName, keep cacheEntry) requests.Request {
	w, requested := pending.Take(source)
	now := time.Now()
	switch {
	case requested && keep.last != nil && now.Before(keep.last.until):
		return w
	case requested:
		return requests.Request{Since: w.Since, Whole: true, Asked: w.Asked}
	case keep.last == nil: // something is not over yet
		return requests.Request{Since: now.Add(-keep.awaiting), Whole: true}
	case now.Before(keep.last.until):
		return requests.Request{Since: keep.last.since}
	default:
		return requests.Request{Since: now.Add(-sharedFor(keep.last.interval)), Whole: true, Elapsed: true}
	}
}
