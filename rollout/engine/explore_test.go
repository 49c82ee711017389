package engine

import (
	"fmt"
	"testing"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// move is one thing that can happen next.
type move struct {
	name string
	do   func(t *testing.T, w *world)
}

// moves lists all that can happen to a world: the controllers' turns, one pod
// becoming ready, a crash after each write, and as many changes from outside
// as are left.
func moves(t *testing.T, w *world, most int, changes []change) []move {
	var ms []move
	add := func(name string, do func(*testing.T, *world)) { ms = append(ms, move{name, do}) }
	add("round", func(t *testing.T, w *world) { w.round(t, -1) })
	writes := w.clone().round(t, 0)
	for k := 1; k <= writes; k++ {
		add(fmt.Sprintf("crash after write %d", k), func(t *testing.T, w *world) { w.round(t, k) })
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
	if w.changes < most {
		for _, c := range changes {
			if c.can(w) {
				add(c.name, func(_ *testing.T, w *world) { w.changes++; c.do(w) })
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
	return change{fmt.Sprintf("scale to %d", n), func(w *world) bool { return w.n != n }, func(w *world) { w.write(func() { w.n = n }) }}
}

func bring(version int) change {
	return change{fmt.Sprintf("bring v%d", version+1), func(w *world) bool { return w.brought != version }, func(w *world) { w.brought, w.approved = version, -1 }}
}

func approve(step int32) change {
	return change{fmt.Sprintf("approve %d", step), func(w *world) bool { return w.approved < step }, func(w *world) { w.approved = step }}
}

// explore visits every state that can be reached, and checks I1–I3 and I10 in
// each, and that from each the release ends if pods come up and gates open.
func explore(t *testing.T, start *world, most int, changes []change) int {
	t.Helper()
	seen := map[string]bool{start.key(): true}
	type node struct {
		w    *world
		path []string
	}
	queue := []node{{w: start}}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, m := range moves(t, at.w, most, changes) {
			next := at.w.clone()
			m.do(t, next)
			path := append(append([]string(nil), at.path...), m.name)
			if len(next.fights) > 0 {
				t.Fatalf("I10: %v\npath %v\nfrom %s\nto   %s", next.fights, path, at.w, next)
			}
			if k := next.key(); !seen[k] {
				seen[k] = true
				queue = append(queue, node{next, path})
				ends(t, next, path)
			}
			if t.Failed() {
				t.Fatalf("path %v", path)
			}
		}
	}
	return len(seen)
}

// ends checks that a world comes to the wanted rest if all goes well from now on.
func ends(t *testing.T, from *world, path []string) {
	t.Helper()
	w := from.clone()
	w.approved = 100
	last := ""
	for range 400 {
		w.round(t, -1)
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
		if k := w.key(); k == last {
			break
		} else {
			last = k
		}
	}
	wanted := w.n == 0 && w.status.Reason == ReasonScaledToZero
	if w.status.Phase == v1alpha1.PhaseCompleted && !w.held && !w.paused && !w.recreate && w.template == w.brought && w.sets[w.brought].size == w.n {
		wanted = true
		for i, rs := range w.sets {
			wanted = wanted && (i == w.brought || rs.size == 0)
		}
	}
	if !wanted {
		t.Fatalf("it does not end\npath %v\nfrom %s\nto   %s", path, from, w)
	}
}

func TestExplore(t *testing.T) {
	var states int
	for _, plan := range [][]string{{"100%"}, {"1", "100%"}, {"50%", "100%"}, {"1", "50%", "100%"}} {
		for n := int32(1); n <= 4; n++ {
			for surge := int32(0); surge <= 2; surge++ {
				for unavailable := int32(0); unavailable <= 2; unavailable++ {
					if surge == 0 && unavailable == 0 {
						continue
					}
					w := newWorld(n, surge, unavailable, plan...)
					changes := []change{bring(0), bring(1), bring(2), approve(0), scaleTo(0), scaleTo(1), scaleTo(n + 2)}
					states += explore(t, w, 2, changes)
					if t.Failed() {
						t.Fatalf("plan %v, N=%d, S=%d, U=%d", plan, n, surge, unavailable)
					}
				}
			}
		}
	}
	t.Logf("%d states", states)
}
