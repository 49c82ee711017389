package engine_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// byUsers is a release that names no commit, as users bring it by hand.
func byUsers(s *setup) { s.noCommit, s.byHand = true, true }

// TestScenarios_Wider are move sequences as those of TestScenarios, with moves that only
// some of the walks have.
func TestScenarios_Wider(t *testing.T) {
	const begun = "quiet; bring 2; quiet; "
	tryScenarios(t, map[string]scenario{
		"pods of a gate come and go": {"their losses add up, and the deadline ends",
			ten(), begun + "flap 2 2m"},
		"pods of a gate come and go, with a short deadline, and roll back": {"their losses add up, and it goes back",
			ten(rollsBack, late(60, 10)), begun + "flap 2 20s; flap 2 20s"},
		"pods of a gate come and go, and stay for a deadline between": {"losses of long ago do not count",
			ten(), begun + "flap 2 20s; run 25m; flap 2 20s; run 25m; flap 2 20s"},
		"a pod of a gate waits for a node, comes, and goes": {"the time without a node does not count",
			ten(rollsBack), begun + "evict 2; run 25m; mend 2; ready 2; sets 2; run 10s; break 2; sets 2; run 1m; quiet"},
		"the ReplicaSet controller is away, and the pods of a gate are lost": {"an approval opens no gate by an old status",
			ten(rollsBack), begun + "evict 2; approve 0; round; round; round; round; quiet"},
		"the ReplicaSet controller is away, and the pods of a pause are lost": {"a pause opens no gate by an old status",
			ten(stepped("50%/1m 100%")), begun + "evict 2; evict 2; time 90s; round; round; round; quiet"},
		"N is raised at a gate, and the pods that it adds fail": {"a raised target rolls nothing back",
			ten(rollsBack, stepped("50% 100%")), begun + "outgrow 2; quiet"},
		"N is raised at a gate of a pause, and the pods that it adds fail": {"a raised target rolls nothing back",
			ten(rollsBack, stepped("50%/1h 100%")), begun + "outgrow 2; quiet"},
		"the API server would refuse the bounds before a release": {"it would refuse the hand-back, so nothing is held",
			ten(), "quiet; bounds bad; bring 2; quiet"},
		"the API server would refuse the bounds at a gate": {"the sizes stay",
			ten(), begun + "bounds bad; approve 0; quiet"},
		"the API server would refuse the bounds under a hold before the first pod": {"it ends, with bounds that the API server takes",
			ten(), "quiet; bring 2; round; round; bounds bad; quiet"},
		"the API server would refuse the bounds, and N is 0": {"it is handed back, with bounds that the API server takes",
			ten(), begun + "bounds bad; scale 0; quiet; scale 10; quiet"},
		"the API server would refuse the bounds, and the plan goes": {"it is handed back",
			ten(), begun + "bounds bad; quiet; unplan; quiet"},
		"the API server would refuse the bounds, N is 1, and the stable pod fails": {"the other one is all there is",
			ten(stepped("1 100%"), late(60, 30), func(s *setup) { s.n, s.unavailable = 2, intstr.FromString("50%") }),
			begun + "bounds bad; scale 1; flap 1 2m"},
		"the stable ReplicaSet is kept by a finalizer, and N is what stays of it": {"it does not pass for saturated",
			of(1, 0, 1, "1 2 75%/5m 100%", rollsBack, ownStrategy, late(60, 10)), "hostage 1; bring 2; outgrow 2; scale 1; quiet"},
		"the hold is opened, and the native controller has not seen it": {"it is put back at once",
			ten(), begun + "running; round; round; native; quiet"},
		"the strategy of the hold is changed, and the native controller has not seen it": {"it is put back at once",
			ten(), begun + "strategy; round; round; native; quiet"},
		"a person pauses the native Deployment": {"the plan says no strategy, and the pause stays",
			ten(ownStrategy), "quiet; halt; quiet; scale 8; quiet"},
		"a person pauses the native Deployment, and a release comes": {"it ends as any release",
			ten(ownStrategy), "quiet; halt; bring 2; quiet; approve 1; quiet"},
		"a person pauses a Deployment whose plan says its strategy": {"Git says that it is not paused",
			ten(), "quiet; halt; quiet"},
		"a Deployment is left alone, and a release comes": {"it does not run what Git says, and is not ready",
			ten(), "quiet; alone; bring 2; quiet; scale 8; quiet"},
		"a Deployment is left alone after a release, and Git goes back": {"it does not run what Git says, and is not ready",
			ten(), begun + "approve 1; quiet; alone; bring 1; quiet; together; quiet"},
		"the plan goes after a release": {"its records go with it",
			ten(), begun + "approve 1; quiet; unplan; quiet"},
		"the plan goes at a gate": {"its records go with it",
			ten(), begun + "unplan; quiet"},
		"the plan goes, the Deployment is paused": {"its records go with it",
			ten(ownStrategy), "quiet; halt; quiet; unplan; quiet"},
		"admission makes another template of the stable one at a hand-back": {"that is recorded, and it is handed back once",
			of(2, 1, 1, "1 50% 100%", admits(mutatesNotDry)), "steps 100%; scale 0; quiet"},
		"admission makes another template of what comes back, and no more": {"what was stable is found by its origin",
			ten(admits(mutatesSince), stepped("100%"), func(s *setup) { s.setAdmission = mutatesSince }),
			"quiet; bring 2; quiet; admit; alter; bring 1; round; round; unadmit; quiet"},
	})
}

// TestScenarios_WithoutCommit are releases that users bring by hand.
func TestScenarios_WithoutCommit(t *testing.T) {
	const begun = "quiet; bring 2; quiet; "
	tryScenarios(t, map[string]scenario{
		"without a commit, a release is taken back and comes again": {"its approval has ended with it",
			ten(byUsers), begun + "approve 0; quiet; bring 1; quiet; bring 2; quiet"},
		"without a commit, a release is superseded and comes again": {"its approval has ended with it",
			ten(byUsers), begun + "approve 0; quiet; bring 3; quiet; bring 2; quiet"},
		"without a commit, a release ends": {"it is approved as any other",
			ten(byUsers), begun + "approve 0; quiet; approve 1; quiet; bring 3; quiet; approve 1; quiet"},
	})
}

// A scenario is a sequence of moves, and why it breaks no rule.
type scenario struct {
	why   string
	setup setup
	moves string
}

func tryScenarios(t *testing.T, scenarios map[string]scenario) {
	t.Helper()
	for name, tc := range scenarios {
		t.Run(name, func(t *testing.T) {
			if v := run(tc.setup, split(strings.TrimSpace(tc.moves))); v != nil {
				t.Errorf("%s\n%s: %s\nsetup %s\npath %s", tc.why, v.rule, v.text, tc.setup, tc.moves)
			}
		})
	}
}

// A pod waits for a node longer than a deadline, comes, and fails soon after: it has the
// whole deadline then.
func TestScenarios_LongWithoutNode(t *testing.T) {
	const (
		waits = "quiet; bring 2; quiet; evict 2; run 25m; mend 2; "
		ready = "ready 2; sets 2; "
		fails = "break 2; sets 2; "
		used  = waits + "sets 2; run 2m; " + ready
	)
	for name, moves := range map[string]string{
		"it was ready at once":            waits + ready + "run 10s; " + fails + "run 9m",
		"it was ready for six minutes":    used + "run 6m; " + fails + "run 9m",
		"it was ready two times, briefly": used + "run 10s; " + fails + "run 2m; mend 2; " + ready + "run 5s; " + fails + "run 5m",
	} {
		t.Run(name, func(t *testing.T) {
			var c *cluster
			if v := runTo(ten(rollsBack), split(moves), &c); v != nil {
				t.Fatalf("%s: %s", v.rule, v.text)
			}
			if sizeOf(c, 2) != 1 || c.br.Status.FailedCommit != "" {
				t.Errorf("it is not at its gate any more: %s", c)
			}
			if c.exec("run 25m"); sizeOf(c, 2) != 0 {
				t.Errorf("it has failed for longer than a deadline, and stays: %s", c)
			}
		})
	}
}

// A gate loses fewer of its pods than maxUnavailable allows, for good.
func TestScenarios_LossWithinMaxUnavailable(t *testing.T) {
	const begun = "quiet; bring 2; quiet; "
	two := func(s *setup) { s.unavailable = intstr.FromInt32(2) }
	for name, tc := range map[string]struct {
		setup setup
		moves string
		runs  int // the version of the Deployment's template
	}{
		"it fails, and the plan rolls back":            {ten(rollsBack, two, stepped("50% 100%")), "break 2; sets 2; run 25m", 1},
		"it fails, and the plan holds":                 {ten(two, stepped("50% 100%")), "break 2; sets 2; run 25m", 2},
		"it waits for a node, and the plan rolls back": {ten(rollsBack, two, stepped("50% 100%")), "evict 2; sets 2; run 25m", 2},
		"it was never there, and the plan rolls back":  {ten(rollsBack, two, stepped("50% 100%")), "outgrow 2", 2},
	} {
		t.Run(name, func(t *testing.T) {
			var c *cluster
			if v := runTo(tc.setup, split(begun+tc.moves), &c); v != nil {
				t.Fatalf("%s: %s", v.rule, v.text)
			}
			if got := versionIn(&c.d.Spec.Template) + 1; got != tc.runs {
				t.Errorf("the Deployment is at v%d, want v%d: %s", got, tc.runs, c)
			}
		})
	}
}
