package engine

import (
	"slices"

	"github.com/tranche-dev/tranche/plan"
)

// followingThere returns the sets as [following]. While no ReplicaSet may be made, the
// stable one that is there grows in place of one that admission would have otherwise.
func followingThere(p *position) []set {
	sets := following(p)
	if !p.CreationRefused || !lacksReplicaSet(sets) {
		return sets
	}
	stable := revisionOfRecord(p.Observed, &p.records[0])
	if stable.rs == nil {
		return sets
	}
	there := *p
	there.course = p.from(stable)
	return following(&there)
}

// following returns the sets with what each is to have: that of the Deployment's
// template, middle revisions, the stable one. Only the stable one grows. If there are too
// many pods, those of middle revisions go first, and with them those of a template that
// has been superseded. A template whose release is under way keeps what its step allows.
func following(p *position) []set {
	goal, stable := newSet(*p.goal), newSet(*p.stable)
	var rest []set
	for _, rs := range p.middle() {
		rest = append(rest, newSet(revisionOfReplicaSet(rs)))
	}
	step := p.status.CurrentStepReplicas
	switch {
	case p.goal.equal(p.stable.template):
		rest = append(rest, goal)
		p.fillAll(rest)
		goal, rest = rest[len(rest)-1], rest[:len(rest)-1]
	case step != nil && p.isGoal():
		var others int32
		goal.want, others = p.apart(min(goal.size, plan.Limit(*step, p.replicas)))
		rest = append(rest, stable)
		fill(rest, others)
	default:
		rest = append(rest, goal, stable)
		p.fillAll(rest)
		goal, rest = rest[len(rest)-2], append(rest[:len(rest)-2:len(rest)-2], rest[len(rest)-1])
		if goal.want == 0 && total(numbers(rest)) != p.replicas {
			goal.want = min(1, goal.size) // or the native controller brings the last one active to N
		}
	}
	return append([]set{goal}, rest...)
}

// fillAll gives all pods to the sets, and at least one to the last one, the stable one. The
// native controller would bring another one that is alone to N, past its gates (H26). With a
// surge that pod is one above N.
func (c *course) fillAll(sets []set) {
	fill(sets, c.replicas)
	stable := &sets[len(sets)-1]
	if stable.want > 0 || stable.rs == nil && c.CreationRefused {
		return
	}
	if c.surge == 0 {
		fill(sets, c.replicas-1)
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

// lacksReplicaSet reports whether a ReplicaSet would have to be made.
func lacksReplicaSet(sets []set) bool {
	return slices.ContainsFunc(sets, func(s set) bool { return s.rs == nil && s.want > 0 })
}

// isAlone reports whether the revision of a release is the only one with pods, and may not
// have all of them. Its gates do not allow that, or a rollback is to leave it. Another
// writer has taken the others away. The native controller would follow N with it, past the
// gate. A stable pod keeps it from that (H26).
func isAlone(p *position, sets []set) bool {
	s := &p.status
	if sets[0].size == 0 || p.goal.equal(p.stable.template) || s.CurrentStepReplicas == nil {
		return false
	}
	if s.RollingBack {
		return !p.isGoal()
	}
	return p.isGoal() && !s.BeganFull && !slices.Contains(p.opened(), plan.Full)
}
