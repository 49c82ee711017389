package rollout_test

import (
	"fmt"
	"testing"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// waitForMark waits until the ReplicaSet of a tag has this mark.
func waitForMark(s *env, tag, want string) {
	s.Helper()
	clustertest.Wait(s, "desired-replicas "+want+" of "+tag, func() error {
		if got := s.set(tag).Annotations[engine.AnnotationDesiredReplicas]; got != want {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})
}

// A controller has ended between the mark of a ReplicaSet (H6) and its hold, and the native
// rollout with it. The next one finds the plan paused, or none, and takes no hold. It takes
// the mark back: the native controller would roll out no template (H11).
func TestMarkWithoutHold(t *testing.T) {
	t.Parallel()
	c := clustertest.Shared(t)
	s := &env{T: t, c: c, ns: c.Namespace(t), brought: map[string]int{"v1": 1}} // with no watcher: it would judge the mark
	stop := startControllerIn(t, c, s.ns)
	s.install(4)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	stop()

	s.edit(func(spec *v1alpha1.BatchReleaseSpec) { spec.Paused = true })
	s.bring("v2")
	s.resize("v1", 4, "5")
	stop = startControllerIn(t, c, s.ns)
	waitForMark(s, "v1", "4")
	s.waitFor(v1alpha1.ReasonReleasePaused, 0, map[string]int32{"v1": 4})
	s.untouched()
	stop()

	s.resize("v1", 4, "5")
	s.unplan()
	startControllerIn(t, c, s.ns)
	waitForMark(s, "v1", "4")
	s.kubectl("-n", s.ns, "set", "image", "deployment/web", "web=registry.example.org/web:v3")
	s.rolled("web", 4)
	s.become(map[string]int32{"v3": 4})
	s.untouched()
}
