package position

import (
	"slices"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
	"github.com/tranche-dev/tranche/rollout/engine/rolling"
)

// Following returns the sets as [following]. While no ReplicaSet may be made, the
// stable one that is there grows in place of one that admission would have otherwise.
func Following(p *Position) []Set {
	sets := following(p)
	if !p.CreationRefused || !LacksReplicaSet(sets) {
		return sets
	}
	stable := facts.RevisionOfRecord(p.Observed, &p.StableRecords[0])
	if stable.ReplicaSet == nil {
		return sets
	}
	there := *p
	there.Course = p.From(stable)
	return following(&there)
}

// following returns the sets with what each is to have: that of the Deployment's
// template, middle revisions, the stable one. Only the stable one grows. If there are too
// many pods, those of middle revisions go first, and with them those of a template that
// has been superseded. A template whose release is under way keeps what its step allows.
func following(p *Position) []Set {
	goal, stable := NewSet(*p.Goal), NewSet(*p.Stable)
	var rest []Set
	for _, rs := range p.middle() {
		rest = append(rest, NewSet(facts.RevisionOfReplicaSet(rs)))
	}
	step := p.Status.CurrentStepReplicas
	switch {
	case p.Goal.Equal(p.Stable.Template):
		rest = append(rest, goal)
		p.fillAll(rest)
		goal, rest = rest[len(rest)-1], rest[:len(rest)-1]
	case step != nil && p.IsGoal():
		var others int32
		goal.Want, others = p.apart(min(goal.Size, plan.Limit(*step, p.Replicas)))
		rest = append(rest, stable)
		fill(rest, others)
	default:
		rest = append(rest, goal, stable)
		p.fillAll(rest)
		goal, rest = rest[len(rest)-2], append(rest[:len(rest)-2:len(rest)-2], rest[len(rest)-1])
		if goal.Want == 0 && rolling.Total(Numbers(rest)) != p.Replicas {
			goal.Want = min(1, goal.Size) // or the native controller brings the last one active to N
		}
	}
	return append([]Set{goal}, rest...)
}

// fillAll gives all pods to the sets, and at least one to the last one, the stable one. The
// native controller would bring another one that is alone to N, past its gates (H26). With a
// surge that pod is one above N.
func (c *Course) fillAll(sets []Set) {
	fill(sets, c.Replicas)
	stable := &sets[len(sets)-1]
	if stable.Want > 0 || stable.ReplicaSet == nil && c.CreationRefused {
		return
	}
	if c.Surge == 0 {
		fill(sets, c.Replicas-1)
	}
	stable.Want = 1
}

// fill gives n pods to the sets: the last one has what the others lack.
func fill(sets []Set, n int32) {
	keep(sets, n)
	for _, s := range sets {
		n -= s.Want
	}
	sets[len(sets)-1].Want += max(0, n)
}

// LacksReplicaSet reports whether a ReplicaSet would have to be made.
func LacksReplicaSet(sets []Set) bool {
	return slices.ContainsFunc(sets, func(s Set) bool { return s.ReplicaSet == nil && s.Want > 0 })
}

// IsAlone reports whether the revision of a release is the only one with pods, and may not
// have all of them. Its gates do not allow that, or a rollback is to leave it. Another
// writer has taken the others away. The native controller would follow N with it, past the
// gate. A stable pod keeps it from that (H26).
func IsAlone(p *Position, sets []Set) bool {
	s := &p.Status
	if sets[0].Size == 0 || p.Goal.Equal(p.Stable.Template) || s.CurrentStepReplicas == nil {
		return false
	}
	if s.RollingBack {
		return !p.IsGoal()
	}
	return p.IsGoal() && !s.BeganFull && !slices.Contains(p.Opened(), plan.Full)
}
