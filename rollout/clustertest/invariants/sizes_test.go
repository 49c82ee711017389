package invariants

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// taken: I1.
var taken = []sequence{
	{"N is 4, U is 0, and an available pod goes before another comes", func(s *story) { s.size("old", 3, tranche) }, []string{"I1"}},
	{
		"the new pod is there and not ready",
		func(s *story) { s.size("new", 1, tranche); s.broken("new"); s.size("old", 3, tranche) }, []string{"I1"},
	},
	{"the new pod is ready", func(s *story) { s.size("new", 1, tranche); s.ready("new", 1); s.size("old", 3, tranche) }, nil},
	{"the new pod is ready, not for minReadySeconds", func(s *story) {
		slow := func(rs *appsv1.ReplicaSet) { rs.Spec.MinReadySeconds = 10 }
		s.size("new", 1, tranche, slow)
		s.ready("new", 1)
		s.later(9 * time.Second)
		s.size("old", 3, tranche)
	}, []string{"I1"}},
	{"the new pod has been ready for minReadySeconds", func(s *story) {
		s.size("new", 1, tranche, func(rs *appsv1.ReplicaSet) { rs.Spec.MinReadySeconds = 10 })
		s.ready("new", 1)
		s.later(11 * time.Second)
		s.size("old", 3, tranche)
	}, nil},
	{"the new pod terminates", func(s *story) {
		s.size("new", 1, tranche)
		s.ready("new", 1)
		s.kill("new", 0)
		s.later(time.Minute)
		s.size("old", 3, tranche)
	}, []string{"I1"}},
	{
		"what is not ready goes first, and costs nothing",
		func(s *story) { s.turn("old", 2, false); s.later(time.Minute); s.size("old", 3, tranche) }, nil,
	},
	{"one that is not ready for its status goes first, and has become ready", func(s *story) {
		s.size("old", 3, tranche, func(rs *appsv1.ReplicaSet) { rs.Status.ObservedGeneration, rs.Status.ReadyReplicas = 1, 3 })
	}, nil},
	{"all are ready for its status", func(s *story) {
		s.size("old", 3, tranche, func(rs *appsv1.ReplicaSet) { rs.Status.ObservedGeneration, rs.Status.ReadyReplicas = 1, 4 })
	}, []string{"I1"}},
	{
		"of two that go only one is not ready",
		func(s *story) { s.turn("old", 2, false); s.later(time.Minute); s.size("old", 2, tranche) }, []string{"I1"},
	},
	{"a pod that has just been lost is not Tranche's", func(s *story) {
		s.size("new", 1, tranche)
		s.ready("new", 1)
		s.turn("new", 0, false)
		s.size("old", 3, tranche)
	}, nil},
	{"a pod that others have just deleted is not Tranche's", func(s *story) {
		s.size("new", 1, tranche)
		s.ready("new", 1)
		s.kill("new", 0)
		s.size("old", 3, tranche)
	}, nil},
	{"a pod that was lost long ago is known", func(s *story) {
		s.size("new", 1, tranche)
		s.ready("new", 1)
		s.turn("new", 0, false)
		s.later(time.Minute)
		s.size("old", 3, tranche)
	}, []string{"I1"}},
	{"a pod that goes since its ReplicaSet is smaller is lost by no one else", func(s *story) {
		s.size("new", 1, tranche)
		s.ready("new", 1)
		s.size("old", 3, tranche)
		s.kill("old", 0)
		s.size("old", 2, tranche)
	}, []string{"I1"}},
	{"two decreases of which the first has not been acted on yet", func(s *story) {
		s.size("new", 1, tranche)
		s.ready("new", 1)
		s.size("old", 3, tranche)
		s.size("old", 2, tranche)
	}, []string{"I1"}},
	{"another hand makes it smaller", func(s *story) { s.size("old", 3, "kubectl") }, nil},
	{"N is smaller now", func(s *story) { s.scale(3); s.later(time.Minute); s.size("old", 3, tranche) }, nil},
	{"N was smaller a moment ago", func(s *story) { s.scale(3); s.scale(4); s.size("old", 3, tranche) }, nil},
	{"N was smaller long ago", func(s *story) { s.scale(3); s.scale(4); s.later(time.Minute); s.size("old", 3, tranche) }, []string{"I1"}},
}

// totals: I2.
var totals = []sequence{
	{"N+S is 5", func(s *story) { s.size("new", 1, tranche); s.size("old", 5, tranche) }, []string{"I2"}},
	{"N+S was 6 a moment ago", func(s *story) { s.scale(5); s.scale(4); s.size("new", 1, tranche); s.size("old", 5, tranche) }, nil},
	{"another manager has deleted the only one with pods, and two controllers answer (H26)", func(s *story) {
		s.size("new", 0, tranche)
		s.see(s.rs["old"], true)
		s.size("new", 4, native)
		delete(s.rs, "old")
		s.size("old", 4, tranche)
	}, nil},
	{"N+S is 6 since the plan says so", func(s *story) {
		s.release(func(br *v1alpha1.BatchRelease) {
			br.Spec.DeploymentStrategy = &appsv1.DeploymentStrategy{
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt32(2))},
			}
		})
		s.size("new", 1, tranche)
		s.size("old", 5, tranche)
	}, nil},
}

// fights: I10.
var fights = []sequence{
	{"a fight (H1)", func(s *story) {
		s.size("old", 3, "kubectl")
		s.size("new", 1, tranche)
		s.later(time.Minute)
		s.size("old", 4, native)
	}, []string{"I10"}},
	{"another manager makes the one smaller that is active, and the native controller undoes it (H1)", func(s *story) {
		s.size("old", 3, "kubectl")
		s.size("old", 4, native)
	}, nil},
	{"another manager scales the stable one to 0, and the native controller brings up the other (H26)", func(s *story) {
		s.to(3, 1)
		s.later(time.Minute)
		s.size("old", 0, "kubectl")
		s.size("new", 4, native)
	}, nil},
	{"another manager makes one smaller while Tranche takes the other one away (H26)", func(s *story) {
		s.to(4, 1)
		s.later(time.Minute)
		s.size("old", 2, "kubectl")
		s.size("new", 0, tranche)
		s.size("old", 4, native)
	}, nil},
	{"another manager made one smaller long before", func(s *story) {
		s.to(4, 1)
		s.size("old", 2, "kubectl")
		s.later(time.Minute)
		s.size("new", 0, tranche)
		s.size("old", 4, native)
	}, []string{"I1", "I10"}},
	{"another manager made the only one smaller just before the hold", func(s *story) {
		s.all()
		s.handBack(tranche)
		s.later(time.Minute)
		s.size("new", 0, "kubectl")
		s.hold("new")
		s.size("new", 4, native)
	}, nil},
	{"another manager made the only one smaller long before the hold", func(s *story) {
		s.all()
		s.handBack(tranche)
		s.size("new", 0, "kubectl")
		s.later(time.Minute)
		s.hold("new")
		s.size("new", 4, native)
	}, []string{"I10"}},
	{"the native controller follows N where there is nothing to split", func(s *story) { s.scale(5); s.size("old", 5, native) }, nil},
	{"it follows N with what another hand has left, and Git has brought for a moment", func(s *story) {
		s.size("old", 0, "kubectl")
		s.size("other", 4, "kubectl")
		s.later(time.Minute)
		s.bring("other", commitNext)
		s.bring("next", commitLast)
		s.scale(5)
		s.size("other", 5, native)
	}, nil},
	{"it follows N with what another hand has left, past the gates of a commit that brings it", func(s *story) {
		s.size("old", 0, "kubectl")
		s.size("other", 4, "kubectl")
		s.later(time.Minute)
		s.bring("other", commitNext)
		s.scale(5)
		s.size("other", 5, native)
	}, []string{"I3", "I10"}},
	{"it follows N down with what a new commit brings again, all pods of which run", func(s *story) {
		s.all()
		s.bring("new", commitNext)
		s.scale(3)
		s.size("new", 3, native)
	}, nil},
	{"it follows N up with that, past the gates of the new commit", func(s *story) {
		s.all()
		s.bring("new", commitNext)
		s.scale(5)
		s.size("new", 5, native)
	}, []string{"I10"}},
	{"one is active, and the native controller undoes what Tranche did (H1)", func(s *story) {
		s.turn("old", 2, false)
		s.size("old", 3, tranche)
		s.size("old", 4, native)
	}, []string{"I10"}},
	{"another hand opens the hold (H7)", func(s *story) {
		s.size("old", 3, "kubectl")
		s.size("new", 1, tranche)
		s.deployment("kubectl", func(d *appsv1.Deployment) { d.Spec.Strategy = appsv1.DeploymentStrategy{} })
		s.size("old", 4, native)
		s.size("new", 2, native)
	}, nil},
	{"another hand has deleted the other ReplicaSet", func(s *story) {
		s.size("old", 3, "kubectl")
		s.size("new", 1, tranche)
		s.see(s.rs["new"], true)
		s.size("old", 4, native)
	}, nil},
	{"the hold was taken in the middle of a native rollout, whose next write was on its way", func(s *story) {
		s.all()
		s.handBack(tranche)
		s.later(time.Minute)
		s.deployment("kubectl", func(d *appsv1.Deployment) { d.Spec.Template = kept("drift") })
		s.size("drift", 1, native)
		s.size("new", 3, native)
		s.hold("new")
		s.size("new", 2, native)
	}, nil},
	{"the hold was taken in the middle of a native rollout, and the native controller has seen it", func(s *story) {
		s.all()
		s.handBack(tranche)
		s.later(time.Minute)
		s.deployment("kubectl", func(d *appsv1.Deployment) { d.Spec.Template = kept("drift") })
		s.size("drift", 1, native)
		s.size("new", 3, native)
		s.hold("new")
		s.deployment(native, func(d *appsv1.Deployment) { d.Status.ObservedGeneration = d.Generation + 1 })
		s.size("new", 2, native)
	}, []string{"I10"}},
	{"another hand had the hold open long ago", func(s *story) {
		s.size("old", 3, "kubectl")
		s.size("new", 1, tranche)
		s.deployment("kubectl", func(d *appsv1.Deployment) { d.Spec.Strategy = appsv1.DeploymentStrategy{} })
		s.deployment(tranche, func(d *appsv1.Deployment) {
			d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
		})
		s.later(time.Minute)
		s.size("old", 4, native)
	}, []string{"I10"}},
	{"not in a Deployment that is not held", func(s *story) { s.all(); s.handBack(tranche); s.size("old", 1, native) }, nil},
	{"the plan is gone: the native controller finishes", func(s *story) {
		s.size("new", 1, tranche)
		s.ready("new", 1)
		s.see(s.br, true)
		s.handBack(tranche)
		s.size("new", 4, native)
		s.size("old", 0, native)
	}, nil},
}
