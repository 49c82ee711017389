package engine_test

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// turns are the moves that are always possible; a violation in them is the
// engine's alone.
var turns = []string{"round", "crash 1", "native", "sets 1", "sets 2", "ready 2", "ready 1", "deliver"}

// changes of users, caches, pods, and of a second writer.
var changes = [][]string{
	{"recommit", "bring 1", "bring 3", "forcepush 1", "approve 0", "scale 1", "scale 0"},
	{"steps 2 100%", "steps 100%", "rename", "losestatus", "pause", "complete", "scale 4", "rollback", "badplan"},
	{"lag deployment", "lag 1", "lag 2", "lag records", "lag release", "restart", "crash 0", "crash 1", "fail 1", "down 3h"},
	{"label", "running", "strategy", "template 3", "resize 1 0", "delete 1", "edit 1", "resize 2 3", "delete 2", "edit 2"},
	{"admit", "undeploy", "unplan", "replan", "break 2", "evict 2", "break 1", "evict 1", "quota 3", "fate 2 never", "fate 2 unschedulable"},
}

func small(bounds [2]int32) setup {
	return setup{n: 3, surge: intstr.FromInt32(bounds[0]), unavailable: intstr.FromInt32(bounds[1]), steps: "1 2 100%", deadline: 600,
		onFailure: v1alpha1.FailureRollback, history: 10, admission: mutatesSince, ownStrategy: true}
}

// TestChangeAtAnyMoment makes every change once at every moment of a plain
// release, and expects the release to end. With -full it makes a second change
// after it as well, at once or one move later. Without, it takes a sample.
func TestChangeAtAnyMoment(t *testing.T) {
	all := slices.Concat(changes...)
	found, n := map[string]bool{}, 0
	for _, bounds := range [][2]int32{{1, 0}, {0, 1}} {
		e := &search{t: t, setup: small(bounds), found: found}
		trunk := plainRelease(e.setup)
		for i := range trunk {
			for k, change := range all {
				if !*full && (i+k)%8 != 0 {
					continue
				}
				paths := [][]string{slices.Concat(trunk[:i], []string{change})}
				for d := range 2 {
					if *full && i+d <= len(trunk) {
						for j := (i + k + d) % 4; j < len(all); j += 4 {
							second := all[j]
							paths = append(paths, slices.Concat(trunk[:i], []string{change}, trunk[i:i+d], []string{second}))
						}
					}
				}
				for _, moves := range paths {
					n++
					e.try(moves)
				}
			}
		}
	}
	t.Logf("%d releases", n)
}

func (e *search) try(moves []string) {
	var path *step
	for _, m := range moves {
		path = &step{m, path}
	}
	e.guard(path, func() {
		c := newCluster(e.setup)
		for _, m := range moves {
			c.exec(m)
		}
		c.ends()
	})
}

// plainRelease is all moves of a release in which nothing unusual happens.
func plainRelease(s setup) []string {
	c := newCluster(s)
	moves := []string{"quiet", "bring 2"}
	for _, m := range moves {
		c.exec(m)
	}
	for range 100 {
		at := len(moves)
		for _, m := range []string{"round", "native", "sets 1", "sets 2", "ready 2"} {
			if m == "round" && c.looked == c.rv && !c.woken {
				continue
			}
			if before := c.rv; c.exec(m) && (c.rv != before || m == "ready 2") {
				moves = append(moves, m)
			}
		}
		if len(moves) > at {
			continue
		}
		if c.br.Status.Reason != v1alpha1.ReasonWaitingForApproval {
			break
		}
		approve := "approve " + strconv.Itoa(int(c.br.Status.CurrentStepIndex))
		c.exec(approve)
		moves = append(moves, approve)
	}
	return moves
}

// TestExploreAdversary visits interleavings of a small release with two changes at any
// moment, those with the fewest moves first. With -full it visits 6,000 states of each
// kind of changes, and without it a few. The clock stands still.
func TestExploreAdversary(t *testing.T) {
	limit := 15
	if *full {
		limit = 6000
	}
	found, states := map[string]bool{}, 0
	for _, bounds := range [][2]int32{{1, 0}, {0, 1}, {1, 1}} {
		for _, of := range changes {
			e := &search{t: t, setup: small(bounds), changes: of, most: 2, limit: limit, seen: map[string]bool{}, found: found}
			e.visit()
			states += len(e.seen)
		}
	}
	t.Logf("%d states", states)
}

// search is one exploration.
type search struct {
	t       *testing.T
	setup   setup
	changes []string
	most    int // changes
	limit   int // states
	seen    map[string]bool
	found   map[string]bool // kinds of violations
}

// node is a state, and the way to it.
type node struct {
	c       *cluster
	path    *step
	changes int
}

func (e *search) visit() {
	start := newCluster(e.setup)
	path := &step{name: "quiet"}
	for _, m := range []string{"quiet", "bring 2"} {
		if e.guard(path, func() { start.exec(m) }) {
			return
		}
	}
	queue := []node{{c: start, path: &step{"bring 2", path}}}
	for len(queue) > 0 && len(e.seen) < e.limit {
		from := queue[0]
		queue = queue[1:]
		moves := turns
		if from.changes < e.most {
			moves = slices.Concat(turns, e.changes)
		}
		for i, m := range moves {
			next := node{c: from.c.clone(), path: &step{m, from.path}, changes: from.changes}
			if i >= len(turns) {
				next.changes++
			}
			if e.guard(next.path, func() { next.c.exec(m) }) {
				continue
			}
			key := fmt.Sprint(next.changes, " ", next.c.key())
			if e.seen[key] {
				continue
			}
			e.seen[key] = true
			queue = append(queue, next)
			e.guard(next.path, func() { next.c.clone().ends() })
		}
	}
}

// guard reports whether a rule was broken. Each kind is reported once.
func (e *search) guard(path *step, do func()) (broken bool) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		v, ok := p.(violation)
		if !ok {
			v = violation{"panic", fmt.Sprintf("%v\n%s", p, debug.Stack())}
		}
		broken = true
		if kind := v.kind(); !e.found[kind] {
			e.found[kind] = true
			e.t.Errorf("%s: %s\nsetup %s\npath %s", v.rule, v.text, e.setup, path)
		}
	}()
	do()
	return false
}

// key identifies a state. The ledger's knowledge is part of it: two ways to the same
// objects are two states if they allow other things.
func (c *cluster) key() string {
	var b strings.Builder
	b.WriteString(c.String())
	fmt.Fprint(&b, c.woken, c.looked == c.rv, c.mutates, c.recordsLag, len(c.known), c.oracle.stable, c.oracle.last, c.oracle.meddled, c.oracle.resized, c.oracle.zeroed, c.oracle.adoptable, c.oracle.awaited)
	for i := range c.dryRuns {
		fmt.Fprint(&b, c.dryRuns[i] != nil)
	}
	if c.dLag && c.dRead != nil {
		fmt.Fprint(&b, c.dRead.Generation, c.dRead.Labels, *c.dRead.Spec.Replicas)
	}
	for _, s := range c.sets {
		fmt.Fprint(&b, s.rs != nil && v1alpha1.HasHeld(s.rs.Labels))
		if s.lag && s.read != nil {
			fmt.Fprint(&b, *s.read.Spec.Replicas, s.read.Status, v1alpha1.HasHeld(s.read.Labels))
		}
	}
	for _, r := range c.oracle.releases {
		fmt.Fprintf(&b, "%d %.7s ", r.version, r.commit) // of the release before the first there is none
		fmt.Fprint(&b, said(r.opened), r.position, r.ended, r.failed, r.completed, r.sure, r.doubtful)
	}
	return b.String()
}
