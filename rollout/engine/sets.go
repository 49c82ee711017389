package engine

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

// goalPods returns the pods of the goal's ReplicaSet, as far as they are certain.
func (c *course) goalPods() pods { return newSet(*c.goal).clamp() }

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

// apart returns the split of N at a goal of this size, with at least one other.
func (c *course) apart(goal int32) (int32, int32) {
	switch n := c.replicas; {
	case goal < n || n == 0:
		return goal, n - goal
	case c.surge > 0:
		return n, 1
	default:
		return n - 1, 1
	}
}

// next returns the sizes that this round may have.
func (c *course) next(sets []set) []int32 {
	return rolling{replicas: c.replicas, surge: c.surge, unavailable: c.unavailable, kept: c.keptPods(), sets: numbers(sets)}.next()
}

func numbers(sets []set) []pods {
	ps := make([]pods, len(sets))
	for i, s := range sets {
		ps[i] = s.pods
	}
	return ps
}
