package stage

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// A dry run counts for validFor, or for validForIntervals of the source if that is longer. Its
// result also depends on schemas, defaults, policies, webhooks and rights. Those change seldom,
// and without a notice.
const (
	validFor          = time.Hour
	validForIntervals = 10
)

// DryRunCache has the objects of which the API server has said that an apply changes nothing.
// The dry run of the same manifest and the same version of the object is not repeated. Drift
// shows in the version.
type DryRunCache struct {
	spec   string // of the source, see [apply.Digest]
	since  time.Time
	passed map[string]string // the stamps, by entry
}

// Valid returns the dry runs of earlier syncs that still count. None counts if a user asks
// for a sync, or has changed what the source applies, or its account.
func (s DryRunCache) Valid(gs *v1alpha1.GitSource, asked bool) DryRunCache {
	spec := apply.Digest(&gs.Spec)
	if s.spec == spec && s.Counts(gs.Spec.IntervalOrDefault()) && !asked {
		return s
	}
	return DryRunCache{spec: spec, since: time.Now(), passed: map[string]string{}}
}

// Counts reports whether dry runs of a source with an interval still count.
func (s DryRunCache) Counts(interval time.Duration) bool {
	return time.Since(s.since) < max(validFor, validForIntervals*interval)
}

// Has reports whether an apply of a target is known to change nothing.
func (s DryRunCache) Has(a *apply.Applier, t *apply.Target) bool {
	now := stamp(a, t)
	return now != "" && s.passed[t.Entry().ID()] == now
}

// Add records that an apply has changed nothing, or would change nothing.
func (s DryRunCache) Add(a *apply.Applier, t *apply.Target) { s.passed[t.Entry().ID()] = stamp(a, t) }

// AddApplied records that an apply has written a whole object. The same apply to the version
// that it has now changes nothing. A plan is tried again, since it may have what an apply does
// not take away.
func (s DryRunCache) AddApplied(a *apply.Applier, t *apply.Target) {
	if t.Applied == nil || t.Mode != apply.Full || t.HandedOver || t.Autoscaled || t.KeepsReplicas() ||
		t.GroupKind() == inventory.ReleaseKind {
		return
	}
	applied := *t
	applied.Live = t.Applied
	s.Add(a, &applied)
}

// stamp returns what the result of an apply depends on: what is applied, how, and to which
// version of the object. It is empty if that is not known, or has to be tried.
func stamp(a *apply.Applier, t *apply.Target) string {
	if t.Live == nil || t.Deferred || t.Mode != apply.Full && t.Mode != apply.ExceptRollout {
		return ""
	}
	raw, err := json.Marshal(a.Manifest(t.Object))
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(raw)
	return fmt.Sprintf("%s %s %d %t %s", t.Live.GetUID(), t.Live.GetResourceVersion(), t.Mode, t.Autoscaled, hex.EncodeToString(sum[:]))
}
