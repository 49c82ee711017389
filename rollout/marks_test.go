package rollout_test

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

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

// A label of a hold is left on ReplicaSets: of a Deployment with a plan, of one without, and
// of none. The controller takes it off, at once and when it starts. The label leaves no other trace.
func TestLabelWithoutHold(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	stop := startControllerIn(t, s.c, s.ns)
	s.install(2)
	s.plan("100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 0, map[string]int32{"v1": 2})
	s.create("other", 1)
	s.rolled("other", 1)
	free := s.newSet("free", "v1", 0)
	free.Labels = map[string]string{"app": "free"}
	free.Spec.Selector.MatchLabels, free.Spec.Template.Labels = free.Labels, free.Labels
	s.must(s.c.Client.Create(t.Context(), free))
	var names []string
	for _, rs := range s.sets() {
		names = append(names, rs.Name)
	}
	taken := func() {
		t.Helper()
		clustertest.Wait(t, "the labels to go", func() error {
			for _, rs := range s.sets() {
				if v1alpha1.HasHeld(rs.Labels) {
					return fmt.Errorf("ReplicaSet %s has labels %v", rs.Name, rs.Labels)
				}
			}
			return nil
		})
	}
	if len(names) != 3 {
		t.Fatalf("ReplicaSets %v", names)
	}
	labelSets(s, names...)
	taken()
	stop()
	labelSets(s, names...)
	startControllerIn(t, s.c, s.ns)
	taken()
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 0, map[string]int32{"v1": 1, "v2": 2})
	s.untouched()
}

// A pod template has a label of the name of that of a hold. Its ReplicaSets have it, too, and keep
// it: by it, the selector of the Deployment knows them.
func TestLabelOfTheTemplate(t *testing.T) {
	t.Parallel()
	c := clustertest.Shared(t)
	s := &env{T: t, c: c, ns: c.Namespace(t), brought: map[string]int{"v1": 1}} // with no watcher: it would judge the label
	startControllerIn(t, c, s.ns)
	const name, value = v1alpha1.LabelHeld, "mine"
	s.install(2, func(d *appsv1.Deployment) {
		d.Spec.Selector.MatchLabels[name], d.Spec.Template.Labels[name] = value, value
	})
	s.plan("100%")
	s.edit(func(spec *v1alpha1.BatchReleaseSpec) { spec.Template.Labels[name] = value })
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 0, map[string]int32{"v1": 2})
	s.edit(func(spec *v1alpha1.BatchReleaseSpec) {
		spec.Template.Spec.Containers[0].Image, spec.Commit = template("web", "v2").Spec.Containers[0].Image, commitOf("v2")
	})
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 0, map[string]int32{"v2": 2})
	for _, rs := range s.sets() {
		if rs.Labels[name] != value || len(rs.OwnerReferences) != 1 {
			t.Errorf("ReplicaSet %s has labels %v and owners %v", rs.Name, rs.Labels, rs.OwnerReferences)
		}
	}
}
