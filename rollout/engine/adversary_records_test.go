package engine_test

import (
	"errors"
	"testing"

	"github.com/tranche-dev/tranche/rollout/engine/facts"
)

// errUnrecorded is the API server's refusal of a ControllerRevision, as by a quota.
var errUnrecorded = errors.New("exceeded quota: count/controllerrevisions.apps")

// sizeOf is the size of the ReplicaSets of a version.
func sizeOf(c *cluster, version int) (n int32) {
	for _, i := range c.live() {
		if versionIn(&c.sets[i].rs.Spec.Template) == version-1 {
			n += facts.Size(c.sets[i].rs)
		}
	}
	return n
}

// No record can be made once a hold is taken for a revision whose ReplicaSet is there from before.
// Its gates stay closed, whatever N does.
func TestScenarios_Unrecorded(t *testing.T) {
	const held = "quiet; bring 2; quiet; approve 1; quiet; bring 3; quiet; approve 1; quiet; bring 1; quiet; approve 1; quiet; " +
		"norecords; bring 2; run 1m; "
	for _, tc := range []struct {
		name, moves string
	}{
		{"N stays", ""},
		{"N is 0 for a while", "scale 0; run 1m; scale 10; run 1m"},
		{"N is 0 until the native controller has seen it", "scale 0; native; scale 10; native; quiet; run 2m; quiet"},
		{"N is 0 for a while, in a plan that is paused", "pause; round; scale 0; run 1m; scale 10; run 1m"},
		{"N is 0 for a while, and the steps are edited", "steps 1 20% 100%; scale 0; run 1m; scale 10; run 1m"},
		{"N is 0 for a while, and the controller is started again", "scale 0; restart; run 1m; scale 10; restart; run 1m"},
		{"N grows", "scale 20; run 1m; scale 10; run 1m"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var c *cluster
			if v := runTo(ten(), split(held+tc.moves), &c); v != nil {
				t.Fatalf("%s: %s", v.rule, v.text)
			}
			if n := sizeOf(c, 2); n > 1 {
				t.Errorf("%d pods run it, and no gate has opened: %s", n, c)
			}
			for _, m := range split("records; unpause; quiet; approve 1; quiet") {
				c.exec(m)
			}
			if n := sizeOf(c, 2); n != 10 {
				t.Errorf("%d pods run it at the end: %s", n, c)
			}
		})
	}
}
