package engine

import (
	"fmt"
	"slices"

	"github.com/tranche-dev/tranche/plan"
)

// follow keeps the sizes of a held Deployment at N if no release may go on. The plan is
// then paused before the release has begun, or plan or template cannot be used. The hold
// keeps the native controller from doing so, except with one active ReplicaSet.
//
// If there is nothing to split, at 0 replicas or with only stable pods, the Deployment is
// handed back at its stable template (H4). With pods it stays held while the hand-back is
// refused. While creations of ReplicaSets are refused, those that are there follow. While
// resizes are, no size is written.
func (v *view) follow() {
	if len(v.records) == 0 || !v.touched() {
		return
	}
	defer func(goal *revision) { v.goal = goal }(v.goal)
	v.stable = v.recorded(0)
	v.goal = v.templated()
	switch sets := v.followingThere(); {
	case v.replicas == 0 || v.seen() && v.onlyStable() && !v.shadowed(v.stable.template) && v.RefusedReason != ReasonHandBackRefused:
		v.handBack("there is nothing to split", v.stable.template)
	case !Held(v.d):
		v.warn(ReasonDriftCorrected, "strategy or paused of the held Deployment were changed; the hold is put back")
		v.do(Hold{because: "the hold was changed by another field manager", Template: &v.d.Spec.Template, Revision: v.goal.name})
	case v.RefusedReason == ReasonWriteRefused && (!v.CreationRefused || lacksReplicaSet(sets)):
	case v.seen() && (active(numbers(sets)) > 1 || v.alone(sets)):
		v.move(sets, because(fmt.Sprintf("%d replicas, and no release may go on", v.replicas)))
	}
}

// alone reports whether the revision of a release is the only one with pods, and may not
// have all of them. Its gates do not allow that, or a rollback is to leave it. Another
// writer has taken the others away. The native controller would follow N with it, past the
// gate. A stable pod keeps it from that (H26).
func (v *view) alone(sets []set) bool {
	s := &v.status
	if sets[0].size == 0 || v.goal.equal(v.stable.template) || s.CurrentStepReplicas == nil {
		return false
	}
	if s.RollingBack {
		return !v.isGoal()
	}
	return v.isGoal() && !s.BeganFull && !slices.Contains(v.opened(), plan.Full)
}

// templated returns the revision of the Deployment's template, of its record where it
// has one: that says what was sent.
func (v *view) templated() *revision {
	live := &v.d.Spec.Template
	if i := slices.IndexFunc(v.Records, func(r Record) bool { return plan.EqualTemplate(r.Template, live) }); i >= 0 {
		return revisionOfRecord(v.Observed, &v.Records[i])
	}
	return revisionOf(v.Observed, live)
}

// lacksReplicaSet reports whether a ReplicaSet would have to be made.
func lacksReplicaSet(sets []set) bool {
	return slices.ContainsFunc(sets, func(s set) bool { return s.rs == nil && s.want > 0 })
}

// onlyStable reports whether all pods run the stable revision.
func (v *view) onlyStable() bool {
	for _, rs := range v.ReplicaSets {
		if size(rs) > 0 && rs != v.stable.rs {
			return false
		}
	}
	return true
}

// followingThere returns the sets as [view.following]. While no ReplicaSet may be made, the
// stable one that is there grows in place of one that admission would have otherwise.
func (v *view) followingThere() []set {
	sets := v.following()
	if !v.CreationRefused || !lacksReplicaSet(sets) {
		return sets
	}
	defer func(stable *revision) { v.stable = stable }(v.stable)
	if v.stable = revisionOfRecord(v.Observed, &v.records[0]); v.stable.rs == nil {
		return sets
	}
	return v.following()
}

// following returns the sets with what each is to have: that of the Deployment's
// template, middle revisions, the stable one. Only the stable one grows. If there are too
// many pods, those of middle revisions go first, and with them those of a template that
// has been superseded. A template whose release is under way keeps what its step allows.
func (v *view) following() []set {
	goal, stable := newSet(*v.goal), newSet(*v.stable)
	var rest []set
	for _, rs := range v.middle() {
		rest = append(rest, newSet(revisionOfReplicaSet(rs)))
	}
	step := v.status.CurrentStepReplicas
	switch {
	case v.goal.equal(v.stable.template):
		rest = append(rest, goal)
		v.fillAll(rest)
		goal, rest = rest[len(rest)-1], rest[:len(rest)-1]
	case step != nil && v.isGoal():
		var others int32
		goal.want, others = v.apart(min(goal.size, plan.Limit(*step, v.replicas)))
		rest = append(rest, stable)
		fill(rest, others)
	default:
		rest = append(rest, goal, stable)
		v.fillAll(rest)
		goal, rest = rest[len(rest)-2], append(rest[:len(rest)-2:len(rest)-2], rest[len(rest)-1])
		if goal.want == 0 && total(numbers(rest)) != v.replicas {
			goal.want = min(1, goal.size) // or the native controller brings the last one active to N
		}
	}
	return append([]set{goal}, rest...)
}

// fillAll gives all pods to the sets, and at least one to the last one, the stable one. The
// native controller would bring another one that is alone to N, past its gates (H26). With a
// surge that pod is one above N.
func (v *view) fillAll(sets []set) {
	fill(sets, v.replicas)
	stable := &sets[len(sets)-1]
	if stable.want > 0 || stable.rs == nil && v.CreationRefused {
		return
	}
	if v.surge == 0 {
		fill(sets, v.replicas-1)
	}
	stable.want = 1
}

// fill gives n pods to the sets: the last one has what the others lack.
func fill(sets []set, n int32) {
	keep(sets, n)
	for _, s := range sets {
		n -= s.want
	}
	sets[len(sets)-1].want += max(0, n)
}
