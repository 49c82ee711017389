package engine

import (
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/action"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
	"github.com/tranche-dev/tranche/rollout/engine/native"
	"github.com/tranche-dev/tranche/rollout/engine/position"
	"github.com/tranche-dev/tranche/rollout/engine/rolling"
)

// moveSizes asks for the sizes that this round may have.
func moveSizes(d *draft, sets []position.Set, why action.Why) {
	d.foreseeGrowth(sets[0], why)
	next, now := d.Next(sets), position.Numbers(sets)
	beside := rolling.Total(now[1:]) > 0 || slices.ContainsFunc(next[1:], func(n int32) bool { return n > 0 })
	unsaturateDeleted(d, sets, next)
	// The goal is first (H1, H6), but not before what stays has its size. It does not get
	// smaller first while it is all that runs: the native controller would bring it back
	// to N (H26).
	// Nor before another one grows. That write fails if the other is no longer as large as it
	// was seen, and then the pods of the goal are needed.
	last := next[0] < sets[0].Size && (next[0] == 0 || rolling.Active(now[1:]) == 0 || position.Grows(sets[1:], next[1:]))
	if beside && (next[0] == sets[0].Size || last) {
		d.unsaturate(sets[0].ReplicaSet)
	}
	var order []int
	if !last {
		order = append(order, 0)
	}
	for _, turn := range []func(i int) bool{ // what leaves goes after what stays has its size
		func(i int) bool { return next[i] > sets[i].Size },
		func(i int) bool { return next[i] <= sets[i].Size && next[i] > 0 },
		func(i int) bool { return next[i] <= sets[i].Size && next[i] == 0 },
	} {
		for i := 1; i < len(next); i++ {
			if turn(i) {
				order = append(order, i)
			}
		}
	}
	if last {
		order = append(order, 0)
	}
	writeSizes(d, sets, next, order, beside, why)
}

func (d *draft) foreseeGrowth(goal position.Set, why action.Why) {
	if d.Forward() && goal.ReplicaSet != nil && goal.Want > goal.Size {
		d.growth = &Resize{Why: why, ReplicaSet: goal.ReplicaSet, To: goal.Want, Desired: d.Replicas, Max: d.Replicas + d.Surge, Held: true}
	}
}

// writeSizes asks for the sizes in this order. If a ReplicaSet must be made whose name is taken,
// nothing shrinks before it is there. Nothing moves before that of the goal is there (H1).
func writeSizes(d *draft, sets []position.Set, next []int32, order []int, beside bool, why action.Why) {
	lacking := slices.IndexFunc(order, func(i int) bool { return next[i] > 0 && nameless(d.Facts, sets[i]) })
	for _, i := range order {
		waits := lacking >= 0 && (order[lacking] == 0 || next[i] < sets[i].Size || nameless(d.Facts, sets[i]))
		if next[i] != sets[i].Size && !waits {
			d.resize(sets[i], next[i], beside && (i == 0 || facts.Deleted(sets[i].ReplicaSet)), why)
		}
	}
	if lacking >= 0 { // last, since it ends the round
		d.do(CountCollision{Why: why, Name: native.NameWithHash(d.Deployment.Name, sets[order[lacking]].Hash)})
	}
}

// nameless reports whether a set has no ReplicaSet, and none can be made under its name.
func nameless(f *facts.Facts, s position.Set) bool {
	return s.ReplicaSet == nil && native.Taken(f, s.Hash)
}

// resize writes a size. A goal of full size beside others is marked as desired larger.
// Otherwise the native controller would take it for saturated, and send all others to 0
// (H6).
func (d *draft) resize(s position.Set, to int32, beside bool, why action.Why) {
	desired, maximum := d.Replicas, d.Replicas+d.Surge
	if beside && to == d.Replicas {
		desired++
	}
	if s.ReplicaSet == nil {
		var number int64
		if s.Name == d.Goal.Name {
			number = facts.MaxRevision(d.ReplicaSets) + 1
		}
		rs := native.NewReplicaSet(d.Deployment, &s.Revision, number, to, desired, maximum)
		facts.SetLabel(d.Deployment, rs, d.Touched())
		d.do(CreateReplicaSet{Why: why, ReplicaSet: rs})
		return
	}
	held := facts.Label(d.Deployment, s.ReplicaSet, d.Touched() && to > 0)
	d.do(Resize{Why: why, ReplicaSet: s.ReplicaSet, To: to, Desired: desired, Max: maximum, Held: held})
}

// unsaturateDeleted keeps ReplicaSets that are being deleted, and that have pods still,
// from passing for saturated (H6). One of the Deployment's template is the new one.
func unsaturateDeleted(d *draft, sets []position.Set, next []int32) {
	for i, s := range sets {
		if facts.Deleted(s.ReplicaSet) && next[i] == s.Size && s.Size == d.Replicas {
			d.unsaturate(s.ReplicaSet)
		}
	}
}

// unsaturate marks a ReplicaSet that is desired as large as it is, and is to stand beside
// others, as desired otherwise. At an N of that size the native controller takes it for
// saturated, and sends all others to 0 (H6).
func (d *draft) unsaturate(rs *appsv1.ReplicaSet) {
	if d.Replicas == 0 || facts.Size(rs) == 0 || rs.Annotations[native.AnnotationDesiredReplicas] != strconv.Itoa(int(facts.Size(rs))) {
		return
	}
	desired := d.Replicas
	if facts.Size(rs) == desired {
		desired++
	}
	d.do(Resize{Why: "it would pass for saturated (H6)", ReplicaSet: rs, To: facts.Size(rs), Desired: desired, Max: d.Replicas + d.Surge,
		Held: facts.Label(d.Deployment, rs, d.Touched())})
}

// takeBackMarks puts the size annotations right that takeHold has written, where the hold has not followed
// and does not now. It takes off labels that a hold has left. A hand-back does both itself.
func takeBackMarks(d *draft) {
	if d.Deployment == nil || d.Rival != "" {
		return
	}
	for _, a := range d.actions {
		_, held := a.(Hold)
		if _, handedBack := a.(HandBack); handedBack || held && d.SeveralActive() {
			return
		}
	}
	var writes []Action
	for _, rs := range d.Marked() {
		writes = append(writes, Resize{Why: "no hold has followed its mark (H11)", ReplicaSet: rs, To: d.Replicas, Desired: d.Replicas,
			Max: d.Replicas + d.Surge, Held: v1alpha1.HasHeld(rs.Labels)})
	}
	for _, rs := range d.ReplicaSets {
		if !d.Touched() && facts.Labelled(d.Deployment, rs) {
			writes = append(writes, UnlabelReplicaSet{Why: "the Deployment is not held", ReplicaSet: rs})
		}
	}
	d.actions = append(writes, d.actions...)
}
