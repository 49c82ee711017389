package engine

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// position is a course with the status as the round has it so far. It tells the step that
// the release is at, and what its gates have opened. Its methods read.
type position struct {
	course
	status v1alpha1.BatchReleaseStatus
}

// failed reports whether what Git brings is what was rolled back, and Git has
// said nothing else since.
func (p *position) failed() bool { return hasFailed(&p.course, &p.status) }

// steps of the way: the plan's, or the rollback's.
func (p *position) steps() []v1alpha1.Step {
	if !p.status.RollingBack {
		return p.spec.Strategy.Steps
	}
	return plan.RollbackSteps(&p.spec.Strategy)
}

// lastStep reports whether the release is at the step that ends it.
func (p *position) lastStep() bool {
	return int(p.status.CurrentStepIndex) >= len(p.steps())-1 && !p.capped()
}

// capped reports whether the plan, as edited, lets the step have more than the
// last gate allowed. The step then waits at a gate before that.
//
// The last step is everything, at any N. At 0 replicas, or at 1, a number would allow as
// much, and the release would end past its gates.
func (p *position) capped() bool {
	switch step := int(p.status.CurrentStepIndex); {
	case p.status.RollingBack:
		return false
	case step >= len(p.steps())-1:
		return !p.full()
	default:
		return p.planned(step) > p.allowed()
	}
}

// full reports whether all pods may run the update revision.
func (p *position) full() bool { return slices.Contains(p.opened(), plan.Full) || p.beganFull() }

// beganFull reports whether the release began with all pods, and has them still: then
// it has nothing to ask a gate for, and opens none. A round that has not resolved what it
// leads to does not know.
func (p *position) beganFull() bool {
	return p.status.BeganFull && p.goal != nil && p.replicas > 0 && p.runsAll()
}

// allowed is how many pods of N the last gate of this release has let run the
// update revision (I3).
func (p *position) allowed() int32 {
	if p.status.RollingBack || p.beganFull() {
		return p.replicas
	}
	var most int32
	for _, r := range p.opened() {
		most = max(most, plan.Limit(r, p.replicas))
	}
	return most
}

// opened is what the gates of this release have opened the way to.
func (p *position) opened() []intstr.IntOrString {
	switch {
	case len(p.status.OpenedReplicas) > 0:
		return p.status.OpenedReplicas
	case p.status.CurrentStepReplicas != nil: // a status of an earlier version
		return []intstr.IntOrString{*p.status.CurrentStepReplicas}
	}
	return p.openTo(0)
}

// openTo returns what the steps up to this one allow: the largest number and the
// largest percentage among them.
func (p *position) openTo(step int) []intstr.IntOrString {
	var number, percent *intstr.IntOrString
	for _, s := range p.steps()[:step+1] {
		r := s.Replicas
		value, isPercent, err := plan.ParseReplicas(r)
		if err != nil {
			continue
		}
		largest := &number
		if isPercent {
			largest = &percent
		}
		if *largest != nil {
			if before, _, _ := plan.ParseReplicas(**largest); before >= value {
				continue
			}
		}
		*largest = &r
	}
	var opened []intstr.IntOrString
	for _, r := range []*intstr.IntOrString{number, percent} {
		if r != nil {
			opened = append(opened, *r)
		}
	}
	return opened
}

// planned returns how many pods of N the plan lets run the goal's revision at
// step i.
func (p *position) planned(i int) int32 {
	steps := p.steps()
	return plan.Target(steps, max(0, min(i, len(steps)-1)), p.replicas) // the plan may have become shorter
}

// target returns how many pods of N run the goal's revision when step i is done, and how
// many run others. The goal's are never more than the gates allow.
//
// Before the last step the others keep at least one pod. With only the goal active the
// native controller would bring the goal to a new N by itself. With a surge that pod is
// one above N. Without one the goal gets one less. That is 0 if N is 1: there is nothing
// to split.
func (p *position) target(i int) (goal, others int32) {
	return p.splitAt(i, min(p.planned(i), p.allowed()))
}

// splitAt returns the split of N at step i for a goal of this size.
func (p *position) splitAt(i int, goal int32) (int32, int32) {
	if i >= len(p.steps())-1 && goal == p.replicas && (p.status.RollingBack || p.full()) {
		return goal, 0
	}
	return p.apart(goal)
}

// apart returns the split of N at a goal of this size, with at least one other.
func (f *facts) apart(goal int32) (int32, int32) {
	switch n := f.replicas; {
	case goal < n || n == 0:
		return goal, n - goal
	case f.surge > 0:
		return n, 1
	default:
		return n - 1, 1
	}
}

// set is one ReplicaSet of the split; its ReplicaSet may have to be made yet.
type set struct {
	revision
	pods
}

func newSet(r revision) set {
	s := set{revision: r, pods: pods{observed: true}}
	if r.rs != nil {
		s.pods = pods{
			size: size(r.rs), ready: r.rs.Status.ReadyReplicas, available: r.rs.Status.AvailableReplicas,
			observed: r.rs.Status.ObservedGeneration >= r.rs.Generation,
		}
	}
	return s
}

// most is how many pods the set can have at its size.
func (s *set) most() int32 {
	if deleted(s.rs) {
		return stays(s.rs)
	}
	return s.size
}

// split returns the sets of the release with what each is to have. The goal's is first,
// then come middle revisions, oldest first, and the stable one last.
//
// A revision that was superseded keeps nothing: the goal has its share, the stable
// revision the rest. On the way back the stable revision is the goal, and the middle ones
// hold the rest until they are gone.
func (p *position) split() []set { return p.shares(p.stopped()) }

func (p *position) shares(stopped bool) []set {
	goal, others := p.target(int(p.status.CurrentStepIndex))
	sets := []set{newSet(*p.goal)}
	if stay := min(sets[0].size, p.allowed()); stay > goal && p.forward() { // an edit takes no pod away
		goal, others = p.apart(stay)
	}
	if stopped {
		goal = min(goal, sets[0].size)
		others = max(others, p.replicas-goal)
	}
	for _, rs := range p.middle() {
		s := newSet(revisionOfReplicaSet(rs))
		s.want = stays(rs)
		sets = append(sets, s)
	}
	if same := p.running() - size(p.goal.rs); same > 0 && p.forward() && goal < p.replicas { // together they stay within what the gates allow (I3)
		goal = max(goal-same, min(goal, sets[0].size))
		others = max(others, p.replicas-goal)
	}
	if p.forward() {
		sets[0].want = goal
		stable := newSet(*p.stable)
		stable.want = others
		return append(sets, stable)
	}
	var middle int32
	for _, s := range sets[1:] {
		middle += s.most()
	}
	keep(sets[1:], others)
	sets[0].want = max(goal, p.replicas-middle)
	return sets
}

// stopped reports whether the goal must not grow: the plan is paused, or the
// step has missed its deadline.
func (p *position) stopped() bool {
	return p.spec.Paused || p.status.CurrentStepState == v1alpha1.StepUpgrade && !p.status.RollingBack && p.deadline() <= 0
}

// keep leaves n pods in all to the sets: what is not ready goes first, then
// what comes first.
func keep(sets []set, n int32) {
	excess := -n
	for i := range sets {
		sets[i].want = sets[i].most()
		excess += sets[i].want
	}
	for _, unreadyOnly := range []bool{true, false} {
		for i := range sets {
			if deleted(sets[i].rs) {
				continue
			}
			most := sets[i].want
			if unreadyOnly {
				most = sets[i].clamp().unready()
			}
			k := max(0, min(excess, most))
			sets[i].want -= k
			excess -= k
		}
	}
}
