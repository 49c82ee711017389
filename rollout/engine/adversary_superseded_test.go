package engine_test

import (
	"fmt"
	"testing"
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
