package invariants

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// handBacks: I7.
var handBacks = []sequence{
	{
		"handed back by halves (H9)",
		func(s *story) { s.all(); s.handBack(tranche, func(d *appsv1.Deployment) { d.Spec.Paused = true }) }, []string{"I7"},
	},
	{"handed back as it was held", func(s *story) {
		s.all()
		s.handBack(tranche, func(d *appsv1.Deployment) {
			d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
		})
	}, []string{"I7"}},
	{"handed back with defaults that are not the manifest's", func(s *story) {
		s.all()
		s.handBack(tranche, func(d *appsv1.Deployment) { d.Spec.Strategy = complete(&appsv1.DeploymentStrategy{}) })
	}, []string{"I7"}},
	{"handed back with what the plan says", func(s *story) {
		s.all()
		s.release(func(br *v1alpha1.BatchRelease) { br.Spec.DeploymentStrategy = &appsv1.DeploymentStrategy{} })
		s.handBack(tranche, func(d *appsv1.Deployment) { d.Spec.Strategy = complete(&appsv1.DeploymentStrategy{}) })
	}, nil},
	{"an annotation of ours on the Deployment", func(s *story) {
		s.all()
		s.handBack(tranche, func(d *appsv1.Deployment) { d.Annotations = map[string]string{"tranche.dev/strategy": "{}"} })
	}, []string{"I7"}},
	{"an annotation that people write", func(s *story) {
		s.all()
		s.handBack(tranche, func(d *appsv1.Deployment) { d.Annotations = map[string]string{"tranche.dev/prune": "disabled"} })
	}, nil},
	{"an annotation of ours on a ReplicaSet (H13)", func(s *story) {
		s.size("new", 1, tranche, func(rs *appsv1.ReplicaSet) { rs.Annotations["tranche.dev/strategy"] = "{}" })
	}, []string{"I7"}},
	{"a label of ours in a template", func(s *story) {
		s.size("new", 1, tranche, func(rs *appsv1.ReplicaSet) { rs.Spec.Template.Labels["tranche.dev/step"] = "1" })
	}, []string{"I7"}},
	{"the label of the hold on a ReplicaSet", func(s *story) { s.size("new", 1, tranche, labelled) }, nil},
	{"it is left at hand-back", func(s *story) { s.all(); s.size("new", 4, tranche, labelled); s.handBack(tranche) }, []string{"I7"}},
	{"it comes after that", func(s *story) { s.all(); s.handBack(tranche); s.size("new", 4, tranche, labelled) }, []string{"I7"}},
	{"desired-replicas is not N at hand-back (H11)", func(s *story) {
		s.all()
		s.size("new", 4, tranche, func(rs *appsv1.ReplicaSet) { rs.Annotations[engine.AnnotationDesiredReplicas] = "5" })
		s.handBack(tranche)
	}, []string{"I7"}},
	{"max-replicas is not N+S at hand-back (H11)", func(s *story) {
		s.all()
		s.size("new", 4, tranche, func(rs *appsv1.ReplicaSet) { rs.Annotations[engine.AnnotationMaxReplicas] = "4" })
		s.handBack(tranche)
	}, []string{"I7"}},
	{"the native controller has written max-replicas in the last moment, since another hand has taken pods away", func(s *story) {
		s.all()
		s.size("new", 0, "kubectl")
		s.size("new", 4, native, func(rs *appsv1.ReplicaSet) { rs.Annotations[engine.AnnotationMaxReplicas] = "4" })
		s.handBack(tranche)
	}, nil},
	{"the native controller has written max-replicas in the last moment, since a user has set another N", func(s *story) {
		s.all()
		s.scale(3)
		s.size("new", 3, native, func(rs *appsv1.ReplicaSet) { rs.Annotations[engine.AnnotationMaxReplicas] = "3" })
		s.handBack(tranche)
	}, nil},
	{"a user has set another N long before the hand-back", func(s *story) {
		s.all()
		s.scale(3)
		s.size("new", 3, native, func(rs *appsv1.ReplicaSet) { rs.Annotations[engine.AnnotationMaxReplicas] = "3" })
		s.later(time.Minute)
		s.handBack(tranche)
	}, []string{"I7"}},
	{"it did so long before the hand-back", func(s *story) {
		s.all()
		s.size("new", 0, "kubectl")
		s.size("new", 4, native, func(rs *appsv1.ReplicaSet) { rs.Annotations[engine.AnnotationMaxReplicas] = "4" })
		s.later(time.Minute)
		s.handBack(tranche)
	}, []string{"I7"}},
	{"desired-replicas is not N once the native controller has seen it (H11)", func(s *story) {
		s.all()
		s.handBack(tranche)
		s.size("new", 4, native, func(rs *appsv1.ReplicaSet) { rs.Annotations[engine.AnnotationDesiredReplicas] = "5" })
		s.deployment(native, func(d *appsv1.Deployment) { d.Status.ObservedGeneration = d.Generation + 1 })
	}, []string{"I7"}},
	{"another hand takes the label away: that is no hand-back", func(s *story) {
		s.handBack("kubectl", func(d *appsv1.Deployment) { d.Spec.Paused = true })
	}, nil},
}

// opened: I8.
var opened = []sequence{
	{"resumed (H8)", func(s *story) { s.deployment("kubectl-rollout", func(d *appsv1.Deployment) { d.Spec.Paused = false }) }, []string{"I8"}},
}

func labelled(rs *appsv1.ReplicaSet) { rs.Labels = map[string]string{v1alpha1.LabelHeld: "true"} }
