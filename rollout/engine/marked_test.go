package engine_test

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/tranche-dev/tranche/rollout/engine"
)

// markLarger marks a ReplicaSet as desired one larger than the Deployment.
func markLarger(c *cluster, i int) {
	c.writeSet(i, func(rs *appsv1.ReplicaSet) {
		rs.Annotations = maps.Clone(rs.Annotations)
		rs.Annotations[engine.AnnotationDesiredReplicas] = strconv.Itoa(int(c.replicas()) + 1)
	})
	c.woken = true
}

// A hold that does not follow its marks leaves a ReplicaSet of all pods desired otherwise.
// The native controller would then make no other one until N changes (H11).
func TestMarkLeftBehind(t *testing.T) {
	for _, tc := range []struct{ why, moves, desired string }{
		{"nothing is under way", "quiet; mark; quiet", "10"},
		{"a release has not begun, since the plan is paused", "quiet; pause; bring 2; quiet; mark; quiet", "10"},
		{"no hold can be taken, since the plan is invalid", "quiet; badplan; quiet; mark; quiet", "10"},
		{"under a hold the mark is meant", "quiet; bring 2; quiet; mark; quiet", "11"},
	} {
		t.Run(tc.why, func(t *testing.T) {
			c := newCluster(ten())
			for _, move := range strings.Split(tc.moves, "; ") {
				if move != "mark" {
					c.exec(move)
					continue
				}
				markLarger(c, 0)
			}
			if got := c.sets[0].rs.Annotations[engine.AnnotationDesiredReplicas]; got != tc.desired {
				t.Errorf("desired-replicas is %s, want %s: %s", got, tc.desired, c)
			}
		})
	}
}

// The mark goes before the records, by which a plan that is gone is known.
func TestMarkLeftBehind_PlanDeleted(t *testing.T) {
	c := newCluster(ten())
	c.exec("quiet")
	markLarger(c, 0)
	o := c.observe()
	o.Release = nil
	revision := c.sets[0].rs.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	want := fmt.Sprintf("[put right the annotations of ReplicaSet web-%s forget %s]", revision, revision)
	if got := fmt.Sprint(engine.Abandon(o)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
