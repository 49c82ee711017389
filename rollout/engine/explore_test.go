package engine_test

import (
	"flag"
	"fmt"
	"slices"
	"testing"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// move is one thing that can happen next.
type move struct {
	name    string
	do      func(t *testing.T, w *world)
	outside bool // a change that people and autoscalers make
}

// moves lists all that can happen to a world. These are the controllers' turns, one pod
// becoming ready, a crash after each write, and as many changes from outside as are left.
func moves(t *testing.T, w *world, most int, changes []change) []move {
	var ms []move
	add := func(name string, do func(*testing.T, *world)) { ms = append(ms, move{name: name, do: do}) }
	d := w.decide()
	add("round", func(t *testing.T, w *world) { w.make(t, d, -1) })
	for k := 1; k <= len(d.Actions); k++ {
		add(fmt.Sprintf("crash after write %d", k), func(t *testing.T, w *world) { w.make(t, d, k) })
	}
	if w.observed != w.generation {
		add("deployment controller", func(_ *testing.T, w *world) { w.turnDeployment() })
	}
	for i, rs := range w.sets {
		if !rs.observed && rs.exists {
			add("replicaset controller v"+fmt.Sprint(i+1), func(_ *testing.T, w *world) { w.turnReplicaSet(i); w.turnDeployment() })
		}
		if rs.pending > 0 {
			add("pod ready v"+fmt.Sprint(i+1), func(_ *testing.T, w *world) {
				w.sets[i].pending--
				w.sets[i].ready++
				w.turnReplicaSet(i)
				w.turnDeployment()
			})
		}
	}
	ms = append(ms, w.measured.moves(w, d)...)
	if w.changes < most {
		for _, c := range changes {
			if c.can(w) {
				ms = append(ms, move{name: c.name, outside: true, do: func(_ *testing.T, w *world) { w.changes++; c.do(w) }})
			}
		}
	}
	return ms
}

// change is one thing that people and autoscalers do.
type change struct {
	name string
	can  func(w *world) bool
	do   func(w *world)
}

func scaleTo(n int32) change {
	return change{fmt.Sprintf("scale to %d", n), func(w *world) bool { return w.n != n }, func(w *world) { w.write(func() { w.scale(n) }) }}
}

func bring(version int) change {
	return change{fmt.Sprintf("bring v%d", version+1), func(w *world) bool { return w.brought != version }, func(w *world) { w.bring(version) }}
}

// bring is a commit with a version.
func (w *world) bring(version int) {
	w.commits++
	w.brought, w.approved = version, -1
}

func approve(step int32) change {
	return change{fmt.Sprintf("approve %d", step), func(w *world) bool { return w.approved < step }, func(w *world) { w.approved = step }}
}

// exploration visits every state that can be reached, and checks I1–I3 and I10 in each.
// From each state the release must end if pods come up and gates open.
type exploration struct {
	t       *testing.T
	most    int // changes from outside
	changes []change
	seen    map[string]bool
	ending  map[string]bool // states that are known to come to the wanted rest
}

func (e *exploration) from(start *world) {
	e.t.Helper()
	type node struct {
		w    *world
		path *step
	}
	e.seen[start.key()] = true
	queue := []node{{w: start}}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, m := range moves(e.t, at.w, e.most, e.changes) {
			next := at.w.clone()
			path := &step{m.name, at.path}
			next.path = path
			m.do(e.t, next)
			if len(next.fights) > 0 {
				e.t.Fatalf("I10: %v\npath %s\nfrom %s\nto   %s", next.fights, path, at.w, next)
			}
			if k := next.key(); !e.seen[k] {
				e.seen[k] = true
				queue = append(queue, node{next, path})
				e.ends(next, path)
			}
		}
	}
}

// step is a way to a state, the last move first.
type step struct {
	name string
	last *step
}

func (s *step) String() string {
	if s == nil {
		return ""
	}
	return s.last.String() + " → " + s.name
}

// ends checks that a world comes to the wanted rest if all goes well from now on.
func (e *exploration) ends(from *world, path *step) {
	e.t.Helper()
	w := from.clone()
	w.approved = 100
	w.measured.goesWell = true
	var way []string
	for last := ""; ; {
		k := w.key()
		if e.ending[k] {
			break
		}
		if k == last && (w.spec.Paused || w.badPlan) {
			if !w.followsReplicas() {
				e.t.Fatalf("it does not follow N while it may not go on\npath %s\nfrom %s\nto   %s", path, from, w)
			}
			if active, _ := w.active(); w.held && len(active) == 1 && active[0] != w.template {
				e.t.Fatalf("it waits with nothing beside what is to be released (H4)\npath %s\nfrom %s\nto   %s", path, from, w)
			}
			w.spec.Paused, w.badPlan = false, false
			continue
		}
		if k == last {
			if !w.rests() {
				e.t.Fatalf("it does not end\npath %s\nfrom %s\nto   %s", path, from, w)
			}
			break
		}
		if len(way) > 400 {
			e.t.Fatalf("it never rests\npath %s\nfrom %s\nto   %s", path, from, w)
		}
		way, last = append(way, k), k
		w.goWell(e.t)
	}
	for _, k := range way {
		e.ending[k] = true
	}
}

// settle lets all go well until nothing moves.
func (w *world) settle(t *testing.T) {
	for last := ""; w.key() != last; {
		last = w.key()
		w.goWell(t)
	}
}

// goWell is a turn of everybody, with all pods coming up that can.
func (w *world) goWell(t *testing.T) {
	d := w.decide()
	w.make(t, d, -1)
	w.measured.goWell(w, d)
	if w.observed != w.generation {
		w.turnDeployment()
	}
	for i := range w.sets {
		if w.sets[i].exists {
			w.turnReplicaSet(i)
		}
		w.sets[i].ready += w.sets[i].pending
		w.sets[i].pending = 0
		w.turnReplicaSet(i)
	}
	w.turnDeployment()
}

// rests reports whether this is what was wanted: what Git brings has all pods,
// natively; or there are none, and the release waits for some.
func (w *world) rests() bool {
	if w.n == 0 && w.status.Reason == v1alpha1.ReasonScaledToZero {
		return true
	}
	wanted := w.brought
	if w.measured.analysed(w) && w.status.FailedRevision == hashes[w.brought] {
		wanted = w.records[0] // it was rolled back
	}
	for i, rs := range w.sets {
		if i != wanted && rs.size > 0 {
			return false
		}
	}
	return w.status.Phase == v1alpha1.PhaseCompleted && !w.held && !w.paused && !w.recreate && w.template == wanted && w.sets[wanted].size == w.n
}

// followsReplicas reports whether there are N pods, or one more where one other
// is kept beside a goal of N. Pods that never become ready may keep surplus ones
// that are.
func (w *world) followsReplicas() bool {
	_, total := w.active()
	if slices.ContainsFunc(w.sets[:], func(rs replicaSet) bool { return rs.stuck > 0 }) {
		return total >= w.n && total <= w.n+max(1, w.surge)
	}
	return total == w.n || total == w.n+1 && w.surge > 0 && w.held
}

// full explores more: two changes from outside for every size.
var full = flag.Bool("full", false, "explore with two changes from outside at every size: minutes")

// TestExplore visits all interleavings of small releases. Pods come up, the native
// controllers take turns, a crash follows every write, and changes come from outside at
// any moment.
func TestExplore(t *testing.T) {
	t.Parallel()
	for _, plan := range [][]string{{"100%"}, {"1", "100%"}, {"50%", "100%"}, {"1", "50%", "100%"}} {
		for n := int32(1); n <= 3 || *full && n <= 4; n++ {
			for _, bounds := range [][2]int32{{0, 1}, {0, 2}, {1, 0}, {1, 1}, {2, 0}, {2, 1}, {2, 2}, {1, 2}} {
				t.Run(fmt.Sprintf("N=%d bounds %v steps %v", n, bounds, plan), func(t *testing.T) {
					t.Parallel()
					e := &exploration{
						t: t, most: 1, seen: map[string]bool{}, ending: map[string]bool{},
						changes: []change{bring(0), bring(1), bring(2), approve(0), scaleTo(0), scaleTo(1), scaleTo(n + 2)},
					}
					if *full || n == 1 && len(plan) == 2 {
						e.most = 2
					}
					start := newWorld(n, bounds[0], bounds[1], plan...)
					start.brought = 1 // a release has just begun
					e.from(start)
					t.Logf("%d states", len(e.seen))
				})
			}
		}
	}
}

// TestExploreFrozen does so if no release may go on. The plan is paused, or cannot be
// used, at a gate or after the release was superseded there.
func TestExploreFrozen(t *testing.T) {
	states := 0
	for n := int32(1); n <= 3 || *full && n <= 4; n++ {
		for _, bounds := range [][2]int32{{0, 1}, {0, 2}, {1, 0}, {1, 1}, {2, 2}} {
			for _, plan := range [][]string{{"1", "100%"}, {"50%", "75%", "100%"}} {
				for _, freeze := range []func(*world){
					func(w *world) { w.spec.Paused = true },
					func(w *world) { w.spec.Paused = true; w.bring(2) },
					func(w *world) { w.spec.Paused = true; w.bring(0) },
					func(w *world) { w.badPlan = true },
					func(w *world) { w.badPlan = true; w.bring(2) },
					func(w *world) { // all pods run what was superseded, and it is brought again
						w.approved = 100
						for int(w.status.CurrentStepIndex) < len(plan)-1 || w.sets[1].size < n {
							w.goWell(t)
						}
						w.spec.Paused = true
						w.settle(t)
						w.bring(2)
						w.settle(t)
						w.bring(1)
					},
				} {
					w := newWorld(n, bounds[0], bounds[1], plan...)
					w.brought = 1
					w.approved = int32(len(plan)) - 3 // the gate before the last step is closed
					w.settle(t)
					freeze(w)
					e := &exploration{t: t, most: 1, seen: map[string]bool{}, ending: map[string]bool{},
						changes: []change{bring(0), bring(2), scaleTo(0), scaleTo(1), scaleTo(n - 1), scaleTo(n + 2)}}
					if *full {
						e.most = 2
					}
					e.from(w)
					states += len(e.seen)
				}
			}
		}
	}
	t.Logf("%d states", states)
}

// TestExploreStuckPods does so where old pods never become ready again. N=3,
// S=1, U=0 with one such pod is the trap in which naive engines wait for ever.
func TestExploreStuckPods(t *testing.T) {
	for n := int32(1); n <= 4; n++ {
		for stuck := int32(1); stuck <= n; stuck++ {
			for _, bounds := range [][2]int32{{0, 1}, {1, 0}, {1, 1}, {2, 2}} {
				e := &exploration{t: t, most: 1, seen: map[string]bool{}, ending: map[string]bool{}, changes: []change{bring(2), approve(0)}}
				w := newWorld(n, bounds[0], bounds[1], "1", "100%")
				w.sets[0].ready, w.sets[0].stuck, w.sets[0].statusReady, w.sets[0].stuckPods = n-stuck, stuck, n-stuck, true
				w.brought = 1
				e.from(w)
			}
		}
	}
}
