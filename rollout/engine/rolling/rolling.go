package rolling

import "slices"

// Pods is one ReplicaSet in numbers: its size, what its status says, and the
// size that it is to have in the end.
type Pods struct {
	Size, Ready, Available, Want int32
	// Observed: the status is about this very size.
	Observed bool
}

// Clamp returns p with what is certain of ready and available. A smaller size is about to
// take pods away. These may be ready and available ones, as soon as those that are not
// ready are used up.
func (p Pods) Clamp() Pods {
	p.Available = max(0, min(p.Available, p.Ready)-max(0, p.Ready-p.Size))
	p.Ready = min(p.Ready, p.Size)
	return p
}

// Unready is how many pods go first when the set shrinks: not there yet,
// pending or not ready. A pod that is ready and not yet available is not among
// them, since readiness, not availability, orders the ReplicaSet controller's
// choice.
func (p Pods) Unready() int32 { return p.Size - p.Ready }

// Round is the arithmetic of one round: how far the sizes may move now.
type Round struct {
	Replicas    int32 // N
	Surge       int32 // S
	Unavailable int32 // U
	// Kept pods are above the size of a ReplicaSet that is being deleted.
	Kept int32
	// Sets: the update revision first, then those to leave, middle revisions
	// before the stable one.
	Sets []Pods
}

// Next returns the sizes to write now, one per set; equal to the present ones
// where nothing may move.
//
// Up: Σsize stays within N+S. For 10 replicas at 25% (S=3), 10 old and a want
// of 5: the update revision gets 3.
//
// Down: Σsize less what is new and not yet available stays at N−U. So with U=2 and 3 new
// pods not available m = 13 − 8 − 3 = 2 old ones may go at once. Unready ones go first
// and cost nothing; ready ones must also leave N−U available in the worst choice that the
// ReplicaSet controller can make.
//
// The set of the update revision must be written first (H1, H6).
func (r Round) Next() []int32 {
	if r.Replicas == 0 {
		return make([]int32, len(r.Sets)) // there is nothing to keep available
	}
	if Active(r.Sets) == 0 { // the stable one first, and whole: any other size the native controller would bring to N
		sizes := make([]int32, len(r.Sets))
		sizes[len(sizes)-1] = r.Replicas
		return sizes
	}
	sets := make([]Pods, len(r.Sets))
	for i, p := range r.Sets {
		sets[i] = p.Clamp()
	}
	moved := r.shrink(r.grow(sets, r.Replicas+r.Surge-r.Kept-Total(sets)))
	if pair, ok := r.swap(sets, moved); ok {
		moved = pair
	}
	if slices.Equal(moved, sets) && sets[0].Size < sets[0].Want {
		relaxed := giveUpUnready(sets)
		moved = r.shrink(relaxed)
		if pair, ok := r.swap(relaxed, moved); ok {
			moved = pair
		}
		for i := range moved {
			moved[i].Want = sets[i].Want
		}
	}
	moved = r.besides(sets, r.apart(sets, moved))
	sizes := make([]int32, len(moved))
	for i, p := range moved {
		sizes[i] = p.Size
	}
	return sizes
}

// apart keeps the safe region if one set that is not the stable one is all that runs, and
// is to shrink. The stable revision's first pod comes before, for the length of one write
// above N+S (H26).
func (r Round) apart(sets, moved []Pods) []Pods {
	last := len(sets) - 1
	if Active(sets) != 1 || sets[last].Size > 0 || Active(moved) > 1 || Total(moved) >= Total(sets) {
		return moved
	}
	grown := append([]Pods(nil), sets...)
	grown[last].Size++
	if after := r.shrink(grown); Total(after) <= r.Replicas+r.Surge {
		return after
	}
	return sets
}

// besides keeps the safe region before the update revision's first pod. If the one active
// set has not N, the native controller brings it to N (H1).
func (r Round) besides(sets, moved []Pods) []Pods {
	if moved[0].Size > 0 || Active(moved) > 1 || Active(sets) > 1 && Total(moved) == r.Replicas {
		return moved
	}
	if Active(sets) < 2 {
		return sets
	}
	last := len(moved) - 1
	if n := r.Replicas; r.Surge == 0 && Total(sets) <= n && moved[last].Size == n-1 && moved[last].Want >= n {
		whole := append([]Pods(nil), moved...) // the stable one is whole again when the other one has left
		whole[last].Size++
		return whole
	}
	kept := append([]Pods(nil), moved...)
	for i := range kept {
		if kept[i].Size == 0 && sets[i].Size > 0 {
			kept[i].Size = 1
			break
		}
	}
	return kept
}

// grow adds pods where they are wanted, the update revision's first, the
// stable one's next, as far as there is room.
func (r Round) grow(sets []Pods, room int32) []Pods {
	grown := append([]Pods(nil), sets...)
	for _, i := range []int{0, len(grown) - 1} {
		if more := min(room, grown[i].Want-grown[i].Size); more > 0 {
			grown[i].Size += more
			room -= more
		}
	}
	return grown
}

// shrink takes pods away where they are not wanted, as far as availability
// allows.
func (r Round) shrink(sets []Pods) []Pods {
	shrunk := append([]Pods(nil), sets...)
	floor := r.Replicas - r.Unavailable
	potential := Total(sets) - floor
	spare := -floor
	settled := true
	for _, p := range sets {
		spare += p.Available
		settled = settled && p.Observed
		if p.Size <= p.Want {
			potential -= p.Size - p.Available // counted on, and not there yet
		}
	}
	take := func(i int, most int32) int32 {
		k := max(0, min(most, potential, shrunk[i].Size-shrunk[i].Want, r.leave(shrunk, i)))
		if i == 0 && Total(shrunk[1:]) == 0 && Total(sets[1:]) > 0 { // the others have left since it has N (H1)
			k = min(k, max(0, shrunk[0].Size-r.Replicas))
		}
		shrunk[i].Size -= k
		potential -= k
		return k
	}
	for i, p := range sets {
		take(i, p.Unready())
	}
	if !settled {
		return shrunk // a status about another size: no ready pod is staked on it
	}
	for i := range sets {
		spare -= take(i, max(0, spare))
	}
	return shrunk
}

// leave returns how many pods may go from set i. The sets other than the update
// revision's must keep one pod until the update revision has N. If they have none, the
// native controller brings the update revision to N by itself (H2).
func (r Round) leave(sets []Pods, i int) int32 {
	if i == 0 {
		return sets[0].Size
	}
	others := Total(sets[1:])
	if sets[0].Size == r.Replicas {
		return others
	}
	return others - 1
}

// giveUpUnready breaks the deadlock in which the update revision has no room and nothing
// that is not wanted may go. Pods of others that are not ready are not wanted then, even
// if others have no more than their share.
func giveUpUnready(sets []Pods) []Pods {
	relaxed := append([]Pods(nil), sets...)
	for i := 1; i < len(relaxed); i++ {
		relaxed[i].Want = min(relaxed[i].Want, relaxed[i].Size-relaxed[i].Unready())
	}
	return relaxed
}

// swap is the move of a Deployment without surge at the two ends of a release. The first
// pod of the update revision must come before any other leaves (H1), and the last one
// before the last other leaves (H2). For the length of one write there are N+1; so it is
// made only if a pod leaves in the same round.
func (r Round) swap(sets, moved []Pods) ([]Pods, bool) {
	first := sets[0].Size == 0 && sets[0].Want > 0
	last := sets[0].Size == r.Replicas-1 && sets[0].Want == r.Replicas && Total(moved) == r.Replicas
	if r.Surge > 0 || r.Kept > 0 || Total(sets) != r.Replicas || !first && !last {
		return nil, false
	}
	grown := append([]Pods(nil), sets...)
	grown[0].Size++
	after := r.shrink(grown)
	return after, Total(after) <= r.Replicas
}

func Active(sets []Pods) int {
	n := 0
	for _, p := range sets {
		if p.Size > 0 {
			n++
		}
	}
	return n
}

func Total(sets []Pods) int32 {
	var n int32
	for _, p := range sets {
		n += p.Size
	}
	return n
}
