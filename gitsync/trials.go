package gitsync

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// triedFor is how long a trial is believed. What else its end hangs on changes
// seldom, and nobody tells of it: schemas, defaults, policies, webhooks, rights.
const triedFor = 10 * time.Minute

// trials are the objects of which the API server has said that an apply changes
// nothing. It need not be asked again about the same manifest and the same
// version of the object: reading that is what tells drift.
type trials struct {
	spec   string // of the source, see [digest]
	since  time.Time
	passed map[string]string // the stamps, by entry
}

// valid returns the trials of earlier looks that still count: none where a user
// asks for a look, or has changed what the source applies, or as whom.
func (t trials) valid(gs *v1alpha1.GitSource, asked bool) trials {
	spec := digest(&gs.Spec)
	if t.spec == spec && time.Since(t.since) < triedFor && !asked {
		return t
	}
	return trials{spec: spec, since: time.Now(), passed: map[string]string{}}
}

// has reports whether it is known that an apply changes nothing.
func (s trials) has(a *applier, t *target) bool {
	now := stamp(a, t)
	return now != "" && s.passed[t.entry().ID()] == now
}

// add remembers that an apply has changed nothing, or would not have.
func (s trials) add(a *applier, t *target) { s.passed[t.entry().ID()] = stamp(a, t) }

// stamp is what the end of an apply hangs on: what is applied, how, and to which
// version of the object. Empty: it is not known, or is to be tried.
func stamp(a *applier, t *target) string {
	if t.live == nil || t.late || t.way != plainly && t.way != asGoverned {
		return ""
	}
	raw, err := json.Marshal(a.manifest(t.Object))
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(raw)
	return fmt.Sprintf("%s %s %d %t %s", t.live.GetUID(), t.live.GetResourceVersion(), t.way, t.autoscaled, hex.EncodeToString(sum[:]))
}
