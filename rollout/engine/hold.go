package engine

import (
	"fmt"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// takeHold takes the hold, once the native controller has finished with what is
// there. A strategy that only the Deployment knows is put on record before it
// is overwritten.
func takeHold(d *draft, why string) {
	opened := d.touched() && !Held(d.Deployment) // another manager has: put back at once, whatever was seen
	if inHold(&d.course) || !opened && !d.seen() || !d.touched() && d.scaling() {
		return
	}
	if r := d.records[0]; !d.touched() && (r.Strategy == nil || !equalStrategy(*r.Strategy, d.strategy)) {
		r.Strategy = &d.strategy
		d.do(Remember{because: "its strategy has changed", Record: r, Exists: true})
	}
	if d.severalActive() { // one alone is marked when another one gets pods
		for _, rs := range d.ReplicaSets { // admission may make the template of any of them of what is written
			d.unsaturate(rs)
		}
	}
	d.do(Hold{because: because(why), Template: d.goal.sent, Revision: d.goal.name})
	record := d.recordOf(d.goal, 0)
	if d.goal.record != nil {
		record = *d.goal.record
		record.Sent = d.goal.id
		record.Order = 0 // where admission makes another template of it, that is not stable yet
	}
	d.do(Remember{because: because(why), Record: record, Written: true, Renames: size(d.goal.rs) == 0})
	forgetReplaced(d)
}

// parkStep hands the Deployment back where the step wants no pod.
func parkStep(d *draft) {
	unhold(d)
	if d.replicas == 0 {
		d.report(v1alpha1.ReasonScaledToZero, fmt.Sprintf("the Deployment has 0 replicas; %s goes on at step %d when it has some", d.goal.name, d.status.CurrentStepIndex))
		return
	}
	advance(d, len(d.actions) == 0)
}

// restoreHold puts back a hold that is not there or not whole.
func restoreHold(d *draft) {
	why := "release of " + d.goal.name
	if !d.touched() { // it was parked: no deadline ran
		d.status.ProgressTime, d.status.BestAvailableReplicas = d.time(), 0
	} else {
		why = "the hold was changed by another field manager"
		d.warn(v1alpha1.ReasonDriftCorrected, "template, strategy or paused of the held Deployment were changed; the hold is put back")
	}
	takeHold(d, why)
	d.report(v1alpha1.ReasonTakingHold, "keeping the native controller off for "+d.goal.name)
}
