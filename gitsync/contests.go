package gitsync

import (
	"strings"
	"time"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/plan/contest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// leaves reports whether drift of an object stays for a while, since another manager changes
// it again after each revert. A new commit, and a user who asks for a sync, do not wait.
func (l *look) leaves(a *apply.Applier, t *apply.Target) bool {
	if t.Live == nil || t.Unchanged || !apply.IsApplied(l.gs, a.Commit) || isAsked(l.gs) {
		return false
	}
	now := time.Now()
	wait := l.keep.contests[t.Entry().ID()].Due(now)
	if wait <= 0 {
		return false
	}
	if due := now.Add(wait); l.outcome.contested.IsZero() || due.Before(l.outcome.contested) {
		l.outcome.contested = due
	}
	return true
}

// reverted notes that drift of an object was reverted.
func (l *look) reverted(t *apply.Target, drifted string) {
	if l.keep.contests == nil {
		l.keep.contests = map[string]contest.Contest{}
	}
	id := t.Entry().ID()
	l.keep.contests[id] = l.keep.contests[id].Revert(time.Now(), strings.TrimPrefix(drifted, t.String()+": "))
}

// tellContests says which objects are changed again after each revert, and by whom: the
// cluster is as the branch says for moments only.
func (l *look) tellContests(c *commit) {
	now, kept := time.Now(), map[string]contest.Contest{}
	for _, t := range append(c.targets[:len(c.targets):len(c.targets)], c.releases...) {
		id := t.Entry().ID()
		c := l.keep.contests[id]
		if c.Reverts > 0 {
			kept[id] = c
		}
		if c.Goes(now) {
			l.outcome.ignored = append(l.outcome.ignored, t.Problem(v1alpha1.ReasonFieldConflict, c.By+contest.Until,
				"take the fields out of Git, or have the other manager leave them alone"))
		}
	}
	l.keep.contests = kept
}
