package engine_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// This file is about marks: size annotations of another size than N, which the controller
// writes before a hold where several ReplicaSets have pods (H6). A mark without a hold keeps
// the native controller from any rollout (H11).

// behind is the native controller where it has not seen the last marks.
const behind = "behind"

// takeTurn is a turn of the native controller. Before a hold it may be behind.
func takeTurn(c *cluster, late bool) {
	if !late || c.d == nil || c.d.Labels[v1alpha1.LabelHeld] != "" {
		c.native()
		return
	}
	k := c.clone()
	for i := range k.sets {
		if k.sets[i].rs != nil && k.sets[i].unseen {
			rs := *k.sets[i].rs
			rs.Annotations = maps.Clone(rs.Annotations)
			maps.Copy(rs.Annotations, engine.SizeAnnotations(*rs.Spec.Replicas, *rs.Spec.Replicas))
			k.sets[i].rs = &rs
		}
	}
	k.native()
	for i := range c.sets {
		if c.sets[i].unseen {
			k.sets[i] = c.sets[i] // a write of it was a conflict
		}
	}
	c.d, c.sets, c.rv, c.serial = k.d, k.sets, k.rv, k.serial
}

// randomTurn is the name of a turn of the native controller.
func randomTurn(r *rand.Rand, c *cluster) string {
	if isUnseen(c) && r.IntN(2) == 0 {
		return "native " + behind
	}
	return "native"
}

// isMarked reports whether the controller has marked a ReplicaSet, and nothing has written
// its size since.
func isMarked(c *cluster) bool {
	return slices.ContainsFunc(c.live(), func(i int) bool { return c.sets[i].marked })
}

// mark notes whether the controller has marked a ReplicaSet.
func (s *podSet) mark(marked bool) { s.marked, s.unseen = marked, marked }

// written notes a write of the controller, which reads its own writes. Writes of others
// come later.
func (s *podSet) written(marked bool) {
	s.read = s.rs
	s.mark(marked)
}

// isUnseen reports whether the native controller has had no turn since a mark.
func isUnseen(c *cluster) bool {
	return slices.ContainsFunc(c.live(), func(i int) bool { return c.sets[i].unseen })
}

// checkMarks judges what a Deployment that is not held is left with, once nothing moves: the
// native controller may see no scaling event. Without a plan and without a mark, it has left
// that by itself.
func checkMarks(c *cluster) {
	if c.d == nil || c.d.Labels[v1alpha1.LabelHeld] != "" || !c.nativeScaling() || c.nativelyStuck() {
		return
	}
	if c.br != nil || isMarked(c) {
		c.violate("H11", "the Deployment is not held, and the native controller takes it for scaled")
	}
}

// toMark is the way to a mark without a hold. A plan comes while the native controller ends a
// rollout to v2, and the round that is to take the hold ends after its mark.
const toMark = "quiet; unplan; quiet; image 2; " + rolled + rolled + rolled + rolled + "replan; round; round; crash 1; "

const rolled = "native; sets 1; sets 2; ready 2; sets 2; "

func split(moves string) []string { return strings.Split(strings.TrimSuffix(moves, "; "), "; ") }

// The last pod of v1 goes before the native controller has seen the mark, and the hold does
// not follow.
func TestScenarios_MarkWithoutHold(t *testing.T) {
	const alone = toMark + "native behind; "
	setup := of(4, 1, 0, "1 100%")
	for name, moves := range map[string]string{
		"the plan is paused":                          alone + "pause; quiet",
		"Git goes back":                               alone + "bring 2; quiet",
		"the plan goes":                               alone + "unplan; quiet",
		"the plan goes before the last pod":           toMark + "unplan; round; native behind; quiet",
		"the plan goes and comes":                     alone + "unplan; round; replan; pause; quiet",
		"the plan cannot be used":                     alone + "badplan; quiet",
		"the plan is paused, and the controller ends": alone + "pause; crash 0; down 1h; quiet",
		"the status is lost":                          alone + "losestatus; pause; quiet",
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(setup)
			for _, m := range split(toMark) {
				c.exec(m)
			}
			if active, _ := c.active(); !isMarked(c) || c.held() || len(active) != 2 {
				t.Fatalf("there is no mark without a hold: %s", c)
			}
			if v := run(setup, split(moves)); v != nil {
				t.Errorf("%s: %s\nsetup %s\npath %s", v.rule, v.text, setup, moves)
			}
		})
	}
}

// TestChangeAtAMark makes every change once at a mark without a hold, and one of a few more
// after it. It does so before and after the last pod of v1 has gone. Without -full it takes a
// sample.
func TestChangeAtAMark(t *testing.T) {
	found, n := map[string]bool{}, 0
	for _, bounds := range [][2]int32{{1, 0}, {2, 0}, {1, 1}} {
		s := small(bounds)
		s.n = 4
		e := &search{t: t, setup: s, found: found}
		for _, change := range slices.Concat(changes...) {
			for _, then := range []string{"", "pause", "unplan", "badplan", "bring 2"} {
				for _, moves := range [][]string{{change, "native behind", then}, {"native behind", change, "round", then}} {
					if n++; !*full && n%5 != 0 {
						continue
					}
					e.try(slices.Concat(split(toMark), slices.DeleteFunc(moves, func(m string) bool { return m == "" })))
				}
			}
		}
	}
	t.Logf("%d releases, or a fifth of them", n)
}
