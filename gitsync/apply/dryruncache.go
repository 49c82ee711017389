package apply

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// validFor is how long a trial is believed. What else its end hangs on changes
// seldom, and nobody tells of it: schemas, defaults, policies, webhooks, rights.
const validFor = 10 * time.Minute

// DryRunCache are the objects of which the API server has said that an apply changes
// nothing. It need not be asked again about the same manifest and the same
// version of the object: reading that is what tells drift.
type DryRunCache struct {
	spec   string // of the source, see [digest]
	since  time.Time
	passed map[string]string // the stamps, by entry
}

// Valid returns the trials of earlier looks that still count: none where a user
// asks for a look, or has changed what the source applies, or as whom.
func (t DryRunCache) Valid(gs *v1alpha1.GitSource, asked bool) DryRunCache {
	spec := Digest(&gs.Spec)
	if t.spec == spec && time.Since(t.since) < validFor && !asked {
		return t
	}
	return DryRunCache{spec: spec, since: time.Now(), passed: map[string]string{}}
}

// Has reports whether it is known that an apply changes nothing.
func (s DryRunCache) Has(a *Applier, t *Target) bool {
	now := stamp(a, t)
	return now != "" && s.passed[t.Entry().ID()] == now
}

// Add remembers that an apply has changed nothing, or would not have.
func (s DryRunCache) Add(a *Applier, t *Target) { s.passed[t.Entry().ID()] = stamp(a, t) }

// stamp is what the end of an apply hangs on: what is applied, how, and to which
// version of the object. Empty: it is not known, or is to be tried.
func stamp(a *Applier, t *Target) string {
	if t.Live == nil || t.Deferred || t.Mode != Full && t.Mode != ExceptRollout {
		return ""
	}
	raw, err := json.Marshal(a.Manifest(t.Object))
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(raw)
	return fmt.Sprintf("%s %s %d %t %s", t.Live.GetUID(), t.Live.GetResourceVersion(), t.Mode, t.Autoscaled, hex.EncodeToString(sum[:]))
}
