package engine

import (
	"slices"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/rollout/engine/action"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
	"github.com/tranche-dev/tranche/rollout/engine/position"
)

// keptRecords is how many revisions are remembered: stable and last stable.
const keptRecords = 2

// rememberGoal makes the goal's revision the newest record, and forgets what is
// neither stable nor last stable any more.
func rememberGoal(d *draft) {
	if d.Goal.Equal(d.StableRecords[0].Template) {
		return
	}
	record, old := d.RecordOf(d.Goal, d.StableRecords[0].Order+1), slices.Concat(d.StableRecords, d.ReleasingRecords)
	i := slices.IndexFunc(old, func(r Record) bool { return d.Goal.Equal(r.Template) })
	if i >= 0 {
		record.Name, record.ResourceVersion, record.Revision = old[i].Name, old[i].ResourceVersion, old[i].Revision
		old = slices.Delete(old, i, i+1)
	}
	kept := keptRecords - 1
	// A rollback that another commit has ended may have brought all pods to the last stable one.
	without := i > 0 && i < len(d.StableRecords) && !slices.Contains(d.Opened(), plan.Full)
	if d.Status.RollingBack || without {
		kept = 0 // what was left by going back is nothing to go back to: it would be released with no gate
	}
	remember := Remember{Why: "all pods run it", Record: record, Exists: i >= 0}
	first := kept > 0 || i < 0 || i >= len(d.StableRecords) // or nothing stable would be on record
	if first {
		d.do(remember)
	}
	forgetOld(d, old, kept)
	if !first {
		d.do(remember) // a controller that ends before the others are forgotten would leave one as last stable
	}
}

// forgetOld forgets records, except for so many of what was stable before the goal.
func forgetOld(d *draft, old []Record, kept int) {
	for _, r := range old {
		if kept > 0 && r.Order > 0 && (r.Sent == "" || r.Sent != d.Goal.ID) {
			kept--
			continue
		}
		d.do(Forget{Why: "neither stable nor last stable", Record: r})
	}
}

// recordGoal puts the goal on record. Pods above its step go before: the record may be refused
// for long, and the native controller may have brought them up meanwhile (H4).
func recordGoal(d *draft) {
	if target, _ := d.Target(int(d.Status.CurrentStepIndex)); d.Seen() && facts.Size(d.Goal.ReplicaSet) > target {
		moveSizes(d, d.Split(), action.Why(position.Purpose(&d.Position)))
	}
	d.do(Remember{Why: "it is under release", Record: d.RecordOf(d.Goal, 0)})
}

// forgetReplaced forgets what was being released before the goal.
func forgetReplaced(d *draft) {
	for _, r := range d.ReleasingRecords {
		// While it has a ReplicaSet, it may come again under another template. Its pods then
		// count against the gates (I3), also if admission would make another one of it today.
		if r.Sent != d.Goal.ID && facts.FindReplicaSet(d.ReplicaSets, r.Template) == nil && facts.FindReplicaSet(d.ReplicaSets, r.Kept) == nil {
			d.do(Forget{Why: "it is not being released any more", Record: r})
		}
	}
}

// newest is the order of the newest record once the actions so far are made.
func (d *draft) newest() int64 {
	var order int64
	if len(d.StableRecords) > 0 {
		order = d.StableRecords[0].Order
	}
	for _, a := range d.actions {
		if r, ok := a.(Remember); ok {
			order = max(order, r.Record.Order)
		}
	}
	return order
}
