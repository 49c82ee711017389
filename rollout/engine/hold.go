package engine

import (
	"fmt"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/action"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
	"github.com/tranche-dev/tranche/rollout/engine/position"
	"github.com/tranche-dev/tranche/rollout/engine/verdict"
)

// takeHold takes the hold, once the native controller has finished with what is there. A strategy that
// only the Deployment knows is put on record before it is overwritten.
func takeHold(d *draft, why string) {
	opened := d.Touched() && !Held(d.Deployment) // another manager has: put back at once, whatever was seen
	if position.InHold(&d.Course) || !opened && !d.Seen() || !d.Touched() && d.Scaling() {
		return
	}
	if r := d.StableRecords[0]; !d.Touched() && (r.Strategy == nil || !facts.EqualStrategy(*r.Strategy, d.Strategy)) {
		r.Strategy = &d.Strategy
		d.do(Remember{Why: "its strategy has changed", Record: r, Exists: true})
	}
	if d.SeveralActive() { // one alone is marked when another one gets pods
		for _, rs := range d.ReplicaSets { // admission may make the template of any of them of what is written
			d.unsaturate(rs)
		}
	}
	d.do(Hold{Why: action.Why(why), Template: d.Goal.Sent, Revision: d.Goal.Name})
	record := d.RecordOf(d.Goal, 0)
	if d.Goal.Record != nil {
		record = *d.Goal.Record
		record.Sent = d.Goal.ID
		record.Order = 0 // where admission makes another template of it, that is not stable yet
	}
	d.do(Remember{Why: action.Why(why), Record: record, Written: true, Renames: facts.Size(d.Goal.ReplicaSet) == 0})
	forgetReplaced(d)
}

// markFull keeps a goal of all pods from passing for saturated (H6) while the native
// controller has not seen the hold. It may have made the goal so large before that.
func markFull(d *draft) {
	if d.SeveralActive() && facts.Size(d.Goal.ReplicaSet) == d.Replicas {
		d.unsaturate(d.Goal.ReplicaSet)
	}
}

// parkStep hands the Deployment back where the step wants no pod.
func parkStep(d *draft) {
	unhold(d)
	verdict.Park(d.Status.Analysis)
	if d.Replicas == 0 {
		d.report(v1alpha1.ReasonScaledToZero,
			fmt.Sprintf("the Deployment has 0 replicas; %s goes on at step %d when it has some", d.Goal.Name, d.Status.CurrentStepIndex))
		return
	}
	advance(d, len(d.actions) == 0)
}

// restoreHold puts back a hold that is not there or not whole.
func restoreHold(d *draft) {
	why := "release of " + d.Goal.Name
	if !d.Touched() { // it was parked: no deadline ran
		d.Status.ProgressTime, d.Status.BestAvailableReplicas = d.Time(), 0
	} else {
		why = "the hold was changed by another field manager"
		d.warn(v1alpha1.ReasonDriftCorrected, "template, strategy or paused of the held Deployment were changed; the hold is put back")
	}
	takeHold(d, why)
	d.report(v1alpha1.ReasonTakingHold, "keeping the native controller off for "+d.Goal.Name)
}
