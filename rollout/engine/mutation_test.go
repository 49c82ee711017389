package engine_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"
)

// A template runs as admission has made it. If the policy goes, nothing is released: Git
// has said nothing else.
func TestMutationEnds(t *testing.T) {
	const begun = "quiet; bring 2; quiet; "
	for _, tc := range []struct{ why, moves string }{
		{"in the middle of a release, which then ends", begun + "admit; patch; quiet; approve 0; quiet; approve 1; quiet"},
		{"before a release", "quiet; admit; bring 2; quiet; approve 0; quiet; approve 1; quiet"},
		{"in a rollback", begun + "approve 0; quiet; approve 1; quiet; rollback; round; admit; round; quiet; scale 8; quiet"},
		{"between releases, and it is written", begun + "approve 0; quiet; approve 1; quiet; admit; patch; quiet"},
		{"between releases, and Git goes back", begun + "approve 0; quiet; approve 1; quiet; admit; bring 1; quiet"},
	} {
		c := newCluster(ten(admits(mutatesSince)))
		for _, move := range strings.Split(tc.moves, "; ") {
			if move == "patch" { // N, not by the scale subresource: admission sees the template
				c.writeDeployment(func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(8)) })
				c.n, c.oracle.resized = 8, true
				continue
			}
			c.exec(move)
		}
		before := c.String()
		if c.held() {
			t.Errorf("%s: it has not ended: %s", tc.why, c)
			continue
		}
		generation := c.d.Generation
		c.exec("unadmit")
		c.exec("restart")
		c.exec("quiet")
		if c.d.Generation != generation {
			t.Errorf("%s: the Deployment is changed once the policy is gone\nbefore %s\nafter  %s", tc.why, before, c)
		}
	}
}
