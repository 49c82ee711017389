package engine

import (
	"cmp"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Observed is what a round is decided on. Decide changes none of it.
type Observed struct {
	// Release is the BatchRelease.
	Release *v1alpha1.BatchRelease
	// Deployment that it governs; nil where there is none.
	Deployment *appsv1.Deployment
	// ReplicaSets that the Deployment controls.
	ReplicaSets []*appsv1.ReplicaSet
	// Records of what has been stable, and of what is being released.
	Records []Record
	// Template is the release's spec.template as the API server defaults it;
	// nil where the spec has none.
	Template *corev1.PodTemplateSpec
	// Minor is the cluster's version: 36 for Kubernetes 1.36. New revisions
	// are named as that version names them.
	Minor int
	// Refused is why the API server does not take spec.template; nil where it does.
	Refused error
	// FirstLook: this process has not looked at the release before.
	FirstLook bool
	// Rival is the name of an older plan for the same Deployment.
	Rival string
}

// Record is a revision that the Deployment runs or ran, kept in the cluster.
type Record = plan.Record

// keptRecords is how many revisions are remembered: stable and last stable.
const keptRecords = 2

// revision is a pod template with its name and, where it exists, its ReplicaSet.
type revision struct {
	name     string
	template *corev1.PodTemplateSpec
	rs       *appsv1.ReplicaSet
}

func (r *revision) equal(t *corev1.PodTemplateSpec) bool {
	return r != nil && plan.EqualTemplate(r.template, t)
}

// revisionOf names a template: by the label of its ReplicaSet where there is
// one, and otherwise by its hash.
func revisionOf(o *Observed, t *corev1.PodTemplateSpec) *revision {
	if t == nil {
		return nil
	}
	r := &revision{template: t, rs: findReplicaSet(o.ReplicaSets, t)}
	if r.rs != nil {
		r.name = r.rs.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	}
	if r.name == "" {
		r.name = plan.TemplateHash(t, o.Deployment.Status.CollisionCount, o.Minor)
	}
	return r
}

func revisionOfReplicaSet(rs *appsv1.ReplicaSet) revision {
	return revision{name: rs.Labels[appsv1.DefaultDeploymentUniqueLabelKey], template: &rs.Spec.Template, rs: rs}
}

// findReplicaSet returns the oldest ReplicaSet with this template, then the
// first by name: the one that the native controller takes for the new one (H19).
func findReplicaSet(sets []*appsv1.ReplicaSet, t *corev1.PodTemplateSpec) *appsv1.ReplicaSet {
	var found *appsv1.ReplicaSet
	for _, rs := range sets {
		if plan.EqualTemplate(&rs.Spec.Template, t) && (found == nil || older(rs, found) < 0) {
			found = rs
		}
	}
	return found
}

func older(a, b *appsv1.ReplicaSet) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// newestFirst returns the records with the stable one first.
func newestFirst(records []Record) []Record {
	return slices.SortedFunc(slices.Values(records), func(a, b Record) int {
		return cmp.Or(cmp.Compare(b.Order, a.Order), cmp.Compare(a.Name, b.Name))
	})
}

func size(rs *appsv1.ReplicaSet) int32 {
	switch {
	case rs == nil:
		return 0
	case rs.Spec.Replicas == nil:
		return 1 // the API server's default
	}
	return *rs.Spec.Replicas
}

func replicas(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1 // the API server's default
	}
	return *d.Spec.Replicas
}

// Held reports whether the native controller is kept off this Deployment by a
// hold of ours.
func Held(d *appsv1.Deployment) bool {
	return d.Labels[v1alpha1.LabelHeld] != "" && d.Spec.Paused && d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType
}

// touched reports whether anything of a hold is on the Deployment, so that a
// half of one, made by other hands, is put right too.
func touched(d *appsv1.Deployment) bool { return d.Labels[v1alpha1.LabelHeld] != "" }
