package engine

import (
	"time"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
)

// Abandon returns the writes that let go of a Deployment whose BatchRelease is gone. If
// it is held, it is handed back, so that the native controller finishes what its template
// says. Its records are deleted. One that is [Mislabelled] loses at most the label:
// Tranche has neither paused it nor set its strategy.
func Abandon(o Observed) []Action {
	o.Release = &v1alpha1.BatchRelease{}
	if o.Deployment == nil {
		return nil
	}
	d := newDraft(&o, time.Time{})
	if !d.Touched() {
		takeBackMarks(d)
		return append(d.actions, forgetAll(o)...)
	}
	if Mislabelled(&o) {
		if !d.Native() { // an admission policy would refuse to take the label off
			return nil
		}
		return []Action{Unlabel{Why: "no plan governs the Deployment, and no hold of Tranche is on it"}}
	}
	endHold(d, "the plan is gone", nil)
	return append(d.actions, forgetAll(o)...)
}

func forgetAll(o Observed) []Action {
	var actions []Action
	for _, r := range facts.NewestFirst(o.Records) {
		actions = append(actions, Forget{Why: "the plan is gone", Record: r})
	}
	return actions
}
