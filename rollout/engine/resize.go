package engine

import "slices"

// pods is one ReplicaSet in numbers: its size, what its status says, and the
// size that it is to have in the end.
type pods struct {
	size, ready, available, want int32
	// observed: the status is about this very size.
	observed bool
}

// clamp returns p with what is certain of ready and available. A smaller size is about to
// take pods away. These may be ready and available ones, as soon as those that are not
// ready are used up.
func (p pods) clamp() pods {
	p.available = max(0, min(p.available, p.ready)-max(0, p.ready-p.size))
	p.ready = min(p.ready, p.size)
	return p
}

// unready is how many pods go first when the set shrinks: not there yet,
// pending or not ready. A pod that is ready and not yet available is not among
// them, since readiness, not availability, orders the ReplicaSet controller's
// choice.
func (p pods) unready() int32 { return p.size - p.ready }

// rolling is the arithmetic of one round: how far the sizes may move now.
type rolling struct {
	replicas    int32 // N
	surge       int32 // S
	unavailable int32 // U
	// kept pods are above the size of a ReplicaSet that is being deleted.
	kept int32
	// sets: the update revision first, then those to leave, middle revisions
	// before the stable one.
	sets []pods
}

// next returns the sizes to write now, one per set; equal to the present ones
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
func (r rolling) next() []int32 {
	if r.replicas == 0 {
		return make([]int32, len(r.sets)) // there is nothing to keep available
	}
	if active(r.sets) == 0 { // the stable one first, and whole: any other size the native controller would bring to N
		sizes := make([]int32, len(r.sets))
		sizes[len(sizes)-1] = r.replicas
		return sizes
	}
	sets := make([]pods, len(r.sets))
	for i, p := range r.sets {
		sets[i] = p.clamp()
	}
	moved := r.shrink(r.grow(sets, r.replicas+r.surge-r.kept-total(sets)))
	if pair, ok := r.swap(sets, moved); ok {
		moved = pair
	}
	if slices.Equal(moved, sets) && sets[0].size < sets[0].want {
		relaxed := giveUpUnready(sets)
		moved = r.shrink(relaxed)
		if pair, ok := r.swap(relaxed, moved); ok {
			moved = pair
		}
		for i := range moved {
			moved[i].want = sets[i].want
		}
	}
	moved = r.besides(sets, r.apart(sets, moved))
	sizes := make([]int32, len(moved))
	for i, p := range moved {
		sizes[i] = p.size
	}
	return sizes
}

// apart keeps the safe region if one set that is not the stable one is all that runs, and
// is to shrink. The stable revision's first pod comes before, for the length of one write
// above N+S (H26).
func (r rolling) apart(sets, moved []pods) []pods {
	last := len(sets) - 1
	if active(sets) != 1 || sets[last].size > 0 || active(moved) > 1 || total(moved) >= total(sets) {
		return moved
	}
	grown := append([]pods(nil), sets...)
	grown[last].size++
	if after := r.shrink(grown); total(after) <= r.replicas+r.surge {
		return after
	}
	return sets
}

// besides keeps the safe region before the update revision's first pod. If the one active
// set has not N, the native controller brings it to N (H1).
func (r rolling) besides(sets, moved []pods) []pods {
	if moved[0].size > 0 || active(moved) > 1 || active(sets) > 1 && total(moved) == r.replicas {
		return moved
	}
	if active(sets) < 2 {
		return sets
	}
	last := len(moved) - 1
	if n := r.replicas; r.surge == 0 && total(sets) <= n && moved[last].size == n-1 && moved[last].want >= n {
		whole := append([]pods(nil), moved...) // the stable one is whole again when the other one has left
		whole[last].size++
		return whole
	}
	kept := append([]pods(nil), moved...)
	for i := range kept {
		if kept[i].size == 0 && sets[i].size > 0 {
			kept[i].size = 1
			break
		}
	}
	return kept
}

// grow adds pods where they are wanted, the update revision's first, the
// stable one's next, as far as there is room.
func (r rolling) grow(sets []pods, room int32) []pods {
	grown := append([]pods(nil), sets...)
	for _, i := range []int{0, len(grown) - 1} {
		if more := min(room, grown[i].want-grown[i].size); more > 0 {
			grown[i].size += more
			room -= more
		}
	}
	return grown
}

// shrink takes pods away where they are not wanted, as far as availability
// allows.
func (r rolling) shrink(sets []pods) []pods {
	shrunk := append([]pods(nil), sets...)
	floor := r.replicas - r.unavailable
	potential := total(sets) - floor
	spare := -floor
	settled := true
	for _, p := range sets {
		spare += p.available
		settled = settled && p.observed
		if p.size <= p.want {
			potential -= p.size - p.available // counted on, and not there yet
		}
	}
	take := func(i int, most int32) int32 {
		k := max(0, min(most, potential, shrunk[i].size-shrunk[i].want, r.leave(shrunk, i)))
		if i == 0 && total(shrunk[1:]) == 0 && total(sets[1:]) > 0 { // the others have left since it has N (H1)
			k = min(k, max(0, shrunk[0].size-r.replicas))
		}
		shrunk[i].size -= k
		potential -= k
		return k
	}
	for i, p := range sets {
		take(i, p.unready())
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
func (r rolling) leave(sets []pods, i int) int32 {
	if i == 0 {
		return sets[0].size
	}
	others := total(sets[1:])
	if sets[0].size == r.replicas {
		return others
	}
	return others - 1
}

// giveUpUnready breaks the deadlock in which the update revision has no room and nothing
// that is not wanted may go. Pods of others that are not ready are not wanted then, even
// if others have no more than their share.
func giveUpUnready(sets []pods) []pods {
	relaxed := append([]pods(nil), sets...)
	for i := 1; i < len(relaxed); i++ {
		relaxed[i].want = min(relaxed[i].want, relaxed[i].size-relaxed[i].unready())
	}
	return relaxed
}

// swap is the move of a Deployment without surge at the two ends of a release. The first
// pod of the update revision must come before any other leaves (H1), and the last one
// before the last other leaves (H2). For the length of one write there are N+1; so it is
// made only if a pod leaves in the same round.
func (r rolling) swap(sets, moved []pods) ([]pods, bool) {
	first := sets[0].size == 0 && sets[0].want > 0
	last := sets[0].size == r.replicas-1 && sets[0].want == r.replicas && total(moved) == r.replicas
	if r.surge > 0 || r.kept > 0 || total(sets) != r.replicas || !first && !last {
		return nil, false
	}
	grown := append([]pods(nil), sets...)
	grown[0].size++
	after := r.shrink(grown)
	return after, total(after) <= r.replicas
}

func active(sets []pods) int {
	n := 0
	for _, p := range sets {
		if p.size > 0 {
			n++
		}
	}
	return n
}

func total(sets []pods) int32 {
	var n int32
	for _, p := range sets {
		n += p.size
	}
	return n
}
