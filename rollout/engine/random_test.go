package engine_test

import (
	"cmp"
	"flag"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
)

var (
	walks = flag.Int("walks", 300, "how many random releases to walk through")
	first = flag.Uint64("first", 1, "number of the first one: the seed")
)

// TestRandom walks through releases that are too large to explore. They have up to 60
// pods, bounds and steps as numbers and percentages, pods that never come up, and changes
// from outside at any moment. I1–I3 and I10 hold after every move, and from where a walk
// stops the release ends.
func TestRandom(t *testing.T) {
	for i := range uint64(*walks) {
		seed := *first + i
		r := rand.New(rand.NewPCG(seed, seed))
		w := randomWorld(r)
		e := &exploration{t: t, most: 6, ending: map[string]bool{}, changes: []change{
			bring(0), bring(1), bring(2), approve(0), approve(1), approve(9), scaleTo(0), scaleTo(1), scaleTo(1 + r.Int32N(60)), scaleTo(1 + r.Int32N(60)), pause, unpause,
		}}
		path := &step{name: "seed " + strconv.FormatUint(seed, 10)}
		for range 40 + r.IntN(400) {
			ms := moves(t, w, e.most, e.changes)
			if r.IntN(20) > 0 { // changes from outside come now and then
				ms = slices.DeleteFunc(ms, func(m move) bool { return m.outside })
			}
			m := ms[r.IntN(len(ms))]
			path = &step{m.name, path}
			w.path = path
			before := w.clone()
			m.do(t, w)
			if len(w.fights) > 0 {
				t.Fatalf("I10: %v\npath %s\nfrom %s\nto   %s", w.fights, path, before, w)
			}
		}
		brought := &w.sets[w.brought] // its pods come up now
		brought.stuckPods, brought.pending, brought.stuck = false, brought.pending+brought.stuck, 0
		e.ends(w, path)
	}
}

var (
	pause   = change{"pause", func(w *world) bool { return !w.spec.Paused }, func(w *world) { w.spec.Paused = true }}
	unpause = change{"unpause", func(w *world) bool { return w.spec.Paused }, func(w *world) { w.spec.Paused = false }}
)

func randomWorld(r *rand.Rand) *world {
	n := 1 + r.Int32N(60)
	var steps []intstr.IntOrString
	for range r.IntN(6) {
		steps = append(steps, number(r, n))
	}
	var names []string
	for _, percent := range []bool{false, true} { // each kind goes up by itself, mixed they may not
		var kind []intstr.IntOrString
		for _, s := range steps {
			if (s.Type == intstr.String) == percent {
				kind = append(kind, s)
			}
		}
		slices.SortFunc(kind, func(a, b intstr.IntOrString) int { return cmp.Compare(value(a), value(b)) })
		for _, s := range kind {
			names = append(names, s.String())
		}
	}
	w := newWorld(n, 0, 0, append(names, "100%")...)
	w.bounds = &[2]intstr.IntOrString{number(r, n), number(r, n)}
	for i := range w.bounds {
		if r.IntN(4) == 0 {
			w.bounds[i] = intstr.FromInt32(0)
		}
	}
	if value(w.bounds[0]) == 0 && value(w.bounds[1]) == 0 { // the API server takes no such Deployment
		w.bounds[1] = intstr.FromInt32(1)
	}
	w.scale(n)
	w.sets[0].maximum = n + w.surge
	w.brought = 1
	w.sets[r.IntN(versions)].stuckPods = r.IntN(4) == 0
	if w.sets[0].stuckPods {
		stuck := r.Int32N(n + 1)
		w.sets[0].ready, w.sets[0].stuck, w.sets[0].statusReady = n-stuck, stuck, n-stuck
	}
	return w
}

// number is one from 1 to n, or a percentage.
func number(r *rand.Rand, n int32) intstr.IntOrString {
	if r.IntN(2) == 0 {
		return intstr.FromInt32(1 + r.Int32N(n))
	}
	return intstr.FromString(strconv.Itoa(1+r.IntN(99)) + "%")
}

func value(v intstr.IntOrString) int {
	if v.Type == intstr.Int {
		return v.IntValue()
	}
	n, _ := strconv.Atoi(v.StrVal[:len(v.StrVal)-1])
	return n
}
