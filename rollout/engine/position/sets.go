package position

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/tranche-dev/tranche/rollout/engine/facts"
	"github.com/tranche-dev/tranche/rollout/engine/rolling"
)

// Set is one ReplicaSet of the split; its ReplicaSet may have to be made yet.
type Set struct {
	facts.Revision
	rolling.Pods
}

func NewSet(r facts.Revision) Set {
	s := Set{Revision: r, Pods: rolling.Pods{Observed: true}}
	if r.ReplicaSet != nil {
		s.Pods = rolling.Pods{
			Size: facts.Size(r.ReplicaSet), Ready: r.ReplicaSet.Status.ReadyReplicas, Available: r.ReplicaSet.Status.AvailableReplicas,
			Observed: r.ReplicaSet.Status.ObservedGeneration >= r.ReplicaSet.Generation,
		}
	}
	return s
}

// GoalPods returns the pods of the goal's ReplicaSet, as far as they are certain.
func (c *Course) GoalPods() rolling.Pods { return NewSet(*c.Goal).Clamp() }

// most is how many pods the set can have at its size.
func (s *Set) most() int32 {
	if facts.Deleted(s.ReplicaSet) {
		return facts.Stays(s.ReplicaSet)
	}
	return s.Size
}

// Split returns the sets of the release with what each is to have. The goal's is first,
// then come middle revisions, oldest first, and the stable one last.
//
// A revision that was superseded keeps nothing: the goal has its share, the stable
// revision the rest. On the way back the stable revision is the goal, and the middle ones
// hold the rest until they are gone.
func (p *Position) Split() []Set { return p.Shares(p.stopped()) }

func (p *Position) Shares(stopped bool) []Set {
	goal, others := p.Target(int(p.Status.CurrentStepIndex))
	sets := []Set{NewSet(*p.Goal)}
	if stay := min(sets[0].Size, p.Allowed()); stay > goal && p.Forward() { // an edit takes no pod away
		goal, others = p.apart(stay)
	}
	if stopped {
		goal = min(goal, sets[0].Size)
		if late(p) && p.Forward() && !p.Spec.Paused && !p.GrowthRefused && !p.fails() {
			goal, others = lent(p, goal, others, sets[0])
		}
		others = max(others, p.Replicas-goal)
	}
	for _, rs := range p.middle() {
		s := NewSet(facts.RevisionOfReplicaSet(rs))
		s.Want = facts.Stays(rs)
		sets = append(sets, s)
	}
	// together they stay within what the gates allow (I3)
	if same := p.Running() - facts.Size(p.Goal.ReplicaSet); same > 0 && p.Forward() && goal < p.Replicas {
		goal = max(goal-same, min(goal, sets[0].Size))
		others = max(others, p.Replicas-goal)
	}
	if p.Forward() {
		sets[0].Want = goal
		stable := NewSet(*p.Stable)
		stable.Want = others
		return append(sets, stable)
	}
	var middle int32
	for _, s := range sets[1:] {
		middle += s.most()
	}
	keep(sets[1:], others)
	sets[0].Want = max(goal, p.Replicas-middle)
	return sets
}

// lent is what a goal that has missed its deadline has while superseded revisions have pods. Its
// unready pods may take all of the room that maxSurge and maxUnavailable give. Then the
// superseded pods could not be replaced, and would serve until another release comes. So it gives
// up one of them, but not the only one that there is room for. The stable revision has what
// maxUnavailable wants without the goal.
func lent(p *Position, goal, others int32, s Set) (int32, int32) {
	room := p.Surge + p.Unavailable
	if room < 2 || !slices.ContainsFunc(p.middle(), func(rs *appsv1.ReplicaSet) bool { return facts.Size(rs) > facts.Stays(rs) }) {
		return goal, others
	}
	return min(goal, s.Available+room-1), max(others, p.Replicas-p.Unavailable-s.Available)
}

// keep leaves n pods in all to the sets: what is not ready goes first, then
// what comes first.
func keep(sets []Set, n int32) {
	excess := -n
	for i := range sets {
		sets[i].Want = sets[i].most()
		excess += sets[i].Want
	}
	for _, unreadyOnly := range []bool{true, false} {
		for i := range sets {
			if facts.Deleted(sets[i].ReplicaSet) {
				continue
			}
			most := sets[i].Want
			if unreadyOnly {
				most = sets[i].Clamp().Unready()
			}
			k := max(0, min(excess, most))
			sets[i].Want -= k
			excess -= k
		}
	}
}

// apart returns the split of N at a goal of this size, with at least one other.
func (c *Course) apart(goal int32) (int32, int32) {
	switch n := c.Replicas; {
	case goal < n || n == 0:
		return goal, n - goal
	case c.Surge > 0:
		return n, 1
	default:
		return n - 1, 1
	}
}

// canStayApart reports whether the goal can have a pod beside another one within the bounds.
func (c *Course) canStayApart() bool { return c.Replicas > 1 || c.Replicas == 1 && c.Surge > 0 }

// Next returns the sizes that this round may have.
func (c *Course) Next(sets []Set) []int32 {
	return rolling.Round{Replicas: c.Replicas, Surge: c.Surge, Unavailable: c.Unavailable, Kept: c.KeptPods(), Sets: Numbers(sets)}.Next()
}

// Grows reports whether one of the sets is to be larger next than it is.
func Grows(sets []Set, next []int32) bool {
	for i, s := range sets {
		if next[i] > s.Size {
			return true
		}
	}
	return false
}

func Numbers(sets []Set) []rolling.Pods {
	ps := make([]rolling.Pods, len(sets))
	for i, s := range sets {
		ps[i] = s.Pods
	}
	return ps
}
