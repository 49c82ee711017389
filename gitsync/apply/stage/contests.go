package stage

import (
	"strings"
	"time"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/contest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Contests are the objects with drift, by entry.
type Contests map[string]contest.Contest

// revert notes that drift of an object was reverted.
func (c Contests) revert(t *apply.Target, now time.Time, drifted string) {
	id := t.Entry().ID()
	c[id] = c[id].Revert(now, strings.TrimPrefix(drifted, t.String()+": "))
}

// Going says which objects are changed again after each revert, and by whom: the
// cluster is as the branch says for moments only. It also returns the contests of the
// targets, without those of objects that the commit does not have.
func (c Contests) Going(targets []*apply.Target, now time.Time) (Contests, plan.Problems) {
	kept := Contests{}
	var ps plan.Problems
	for _, t := range targets {
		id := t.Entry().ID()
		of := c[id]
		if of.Reverts > 0 {
			kept[id] = of
		}
		if of.Goes(now) {
			ps = append(ps, t.Problem(v1alpha1.ReasonFieldConflict, of.By+contest.Until,
				"take the fields out of Git, or have the other manager leave them alone"))
		}
	}
	return kept, ps
}
