package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// This file is a policy that lets the ReplicaSet of a version not grow, and what package
// rollout does about it. The native controller is exempt.

// errCapped is the API server's refusal.
var errCapped = errors.New("a policy does not let the ReplicaSet grow")

// changeCap puts the policy in force for a version, or takes it away at 0. A process that
// is there has no reason to look then.
func changeCap(c *cluster, version int) bool {
	changes := c.capped != version
	c.capped = version
	return changes
}

// refusesGrowth reports whether the policy refuses this size of set i.
func refusesGrowth(c *cluster, i int, to int32) bool {
	return versionIn(&c.sets[i].rs.Spec.Template)+1 == c.capped && to > c.size(i)
}

// tryGrowth is the dry run of the update revision's growth where a write was refused before.
func tryGrowth(c *cluster, o *engine.Observed, d engine.Decision) error {
	if d.Growth == nil || o.Release.Status.Reason != v1alpha1.ReasonWriteRefused {
		return nil
	}
	i := slices.IndexFunc(c.sets, func(s podSet) bool { return s.rs != nil && s.rs.UID == d.Growth.ReplicaSet.UID })
	if i >= 0 && refusesGrowth(c, i, d.Growth.To) {
		return errCapped
	}
	return nil
}

// resizeRest resizes the other ReplicaSets after a refusal, and ends the round.
func resizeRest(c *cluster, o *engine.Observed) {
	rest := *o
	rest.GrowthRefused = true
	actions := engine.Decide(rest, c.now).Actions
	for _, a := range actions {
		_, creates := a.(engine.CreateReplicaSet)
		r, ok := a.(engine.Resize)
		if !ok && !creates || ok && versionIn(&r.ReplicaSet.Spec.Template)+1 == c.capped && r.To > *r.ReplicaSet.Spec.Replicas {
			actions = nil
			break
		}
	}
	for _, a := range actions {
		before := c.clone()
		if c.apply(o, a) != nil {
			c.woken = true
			return
		}
		judgeWrite(c, before, o, a)
	}
	tellRefused(c, o, errCapped)
}

// While the update revision may not grow, the stable one takes the pods that are added to N.
// They go once the update revision may have them, and none goes in vain.
func TestScenarios_Capped(t *testing.T) {
	for _, bounds := range [][2]int32{{2, 1}, {0, 2}, {1, 0}, {3, 3}} {
		t.Run(fmt.Sprint(bounds), func(t *testing.T) {
			for _, tc := range []struct {
				moves          string
				stable, update int32 // at the end
			}{
				{"quiet; bring 2; quiet; approve 0; quiet; cap 2; scale 20; quiet", 15, 5},
				{"quiet; bring 2; quiet; approve 0; quiet; cap 2; scale 20; quiet; scale 14; quiet", 9, 5},
				{"quiet; bring 2; quiet; approve 0; quiet; cap 2; scale 20; quiet; scale 6; quiet", 3, 3},
				{"quiet; bring 2; quiet; approve 0; quiet; cap 2; scale 20; quiet; cap 0; time 2m; quiet", 10, 10},
				{"quiet; bring 2; quiet; cap 2; approve 0; quiet", 9, 1},
				{"quiet; bring 2; quiet; cap 2; approve 0; quiet; restart; quiet; time 2m; quiet", 9, 1},
				{"quiet; bring 2; quiet; cap 2; approve 0; quiet; scale 20; quiet; bring 1; quiet", 20, 0},
				{"quiet; bring 2; quiet; cap 2; approve 1; quiet; scale 20; quiet; restart; time 2m; quiet", 19, 1},
			} {
				var c *cluster
				v := runTo(ten(func(s *setup) { s.surge.IntVal, s.unavailable.IntVal = bounds[0], bounds[1] }), split(tc.moves), &c)
				if v != nil {
					t.Errorf("%s\n%s: %s", tc.moves, v.rule, v.text)
					continue
				}
				if stable, update := c.sizeOf(0), c.sizeOf(1); stable != tc.stable || update != tc.update {
					t.Errorf("%s: v1 has %d pods and v2 %d, want %d and %d\n%s", tc.moves, stable, update, tc.stable, tc.update, c)
				}
			}
		})
	}
}

// The same if the ReplicaSet of the stable revision has to be made, since admission makes
// another template of it.
func TestScenarios_CappedBesideAdmission(t *testing.T) {
	s := of(6, 1, 2, "20% 60% 100%", ownStrategy, admits(mutatesSince))
	if v := run(s, split("round; cap 2; undeploy; admit; bring 2")); v != nil {
		t.Errorf("%s: %s", v.rule, v.text)
	}
}

// While nothing changes, a refusal that lasts takes no pod away and brings none back.
func TestCapped_TakesNoPodAwayInVain(t *testing.T) {
	for _, bounds := range [][2]int32{{2, 1}, {0, 2}, {1, 0}, {3, 3}} {
		var c *cluster
		moves := split("quiet; bring 2; quiet; cap 2; approve 0; quiet; scale 20; quiet")
		if v := runTo(ten(func(s *setup) { s.surge.IntVal, s.unavailable.IntVal = bounds[0], bounds[1] }), moves, &c); v != nil {
			t.Fatalf("%s: %s", v.rule, v.text)
		}
		before := c.said()
		for range 20 {
			c.exec("time 1m")
			c.restart()
			c.exec("quiet")
			if now := c.said(); now != before {
				t.Fatalf("bounds %v: nothing has changed, and it writes:\n%s\n%s\n%s", bounds, before, now, c)
			}
		}
	}
}
