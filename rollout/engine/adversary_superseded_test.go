package engine_test

import (
	"fmt"
	"testing"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// A release comes whose pods do not start, while another one has half of the pods. The pods of the
// superseded one are replaced all the same, by those of the stable revision.
func TestScenarios_SupersededByWhatDoesNotStart(t *testing.T) {
	for _, bounds := range [][2]int32{{1, 1}, {2, 0}, {0, 2}, {3, 2}} {
		t.Run(fmt.Sprint(bounds), func(t *testing.T) {
			var c *cluster
			s := of(9, bounds[0], bounds[1], "20% 50% 100%", late(60, 0))
			if v := runTo(s, split("quiet; bring 2; quiet; approve 0; quiet; fate 3 never; bring 3; quiet; run 25m; quiet"), &c); v != nil {
				t.Fatalf("%s: %s", v.rule, v.text)
			}
			if n := sizeOf(c, 2); n > 0 {
				t.Errorf("%d pods of the superseded revision are left: %s", n, c)
			}
			if n := sizeOf(c, 3); n == 0 {
				t.Errorf("no pod is left to recover: %s", c)
			}
			for _, m := range split("fate 3 comes; mend 3; mend 3; quiet; approve 1; quiet") {
				c.exec(m)
			}
			if n := sizeOf(c, 3); n != 9 {
				t.Errorf("%d pods run it at the end: %s", n, c)
			}
		})
	}
}

// All pods run a version, by all its gates, and another one comes before the hand-back. The first is what
// runs meanwhile and what a revert leads to. The one before it does not come back.
func TestScenarios_EndedBeforeTheHandBack(t *testing.T) {
	for name, tc := range map[string]struct {
		moves string
		want  [4]int32 // pods of each version
	}{
		"another version":               {"bring 3; quiet", [4]int32{0, 0, 9, 1}},
		"another one, and a crash":      {"bring 3; crash 1; quiet", [4]int32{0, 0, 9, 1}},
		"another one, and a revert":     {"bring 3; quiet; bring 2; quiet", [4]int32{0, 0, 10, 0}},
		"a revert":                      {"bring 1; quiet", [4]int32{0, 10, 0, 0}},
		"a revert after another one":    {"bring 3; round; bring 1; quiet", [4]int32{0, 10, 0, 0}},
		"another one, and its approval": {"bring 3; quiet; approve 0; quiet; approve 1; quiet; bring 2; quiet", [4]int32{0, 0, 10, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			var c *cluster
			moves := split("quiet; bring 2; quiet; approve 1; round")
			for range 40 {
				if v := runTo(ten(), moves, &c); v != nil {
					t.Fatalf("%s: %s", v.rule, v.text)
				}
				if c.br.Status.Phase == v1alpha1.PhaseFinalizing {
					break
				}
				moves = append(moves, "turns", "round")
			}
			if v := runTo(ten(), append(moves, split(tc.moves)...), &c); v != nil {
				t.Fatalf("%s: %s", v.rule, v.text)
			}
			for version, n := range tc.want {
				if got := sizeOf(c, version); got != n {
					t.Errorf("%d pods run version %d, want %d: %s", got, version, n, c)
				}
			}
			first := c.br.Status.History[len(c.br.Status.History)-1]
			if name != "a revert" && first.Outcome != v1alpha1.OutcomeCompleted {
				t.Errorf("the release ended as %s", first.Outcome)
			}
		})
	}
}
