package engine

import (
	"cmp"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/plan"
)

// A ReplicaSet that is being deleted may be kept by finalizers. The native controller takes
// it for what it was: new or old, and active with a size. The ReplicaSet controller makes no
// pod of it, and takes none away by its size. So it is not the ReplicaSet of a revision, which
// gets another one under another name. Its own name is taken.

// findReplicaSet returns the oldest ReplicaSet with this template, then the
// first by name: the one that the native controller takes for the new one (H19). One
// that is being deleted gets no pod, and is none.
func findReplicaSet(sets []*appsv1.ReplicaSet, t *corev1.PodTemplateSpec) *appsv1.ReplicaSet {
	var found *appsv1.ReplicaSet
	for _, rs := range sets {
		if !deleted(rs) && plan.EqualTemplate(&rs.Spec.Template, t) && (found == nil || older(rs, found) < 0) {
			found = rs
		}
	}
	return found
}

func older(a, b *appsv1.ReplicaSet) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
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

// deleted reports whether a ReplicaSet is being deleted.
func deleted(rs *appsv1.ReplicaSet) bool { return rs != nil && rs.DeletionTimestamp != nil }

// stays is how many pods a ReplicaSet that is being deleted keeps at any size. Pods that
// are being deleted themselves are not among them. Its size stays as large, so that the
// sum of sizes is no less than the pods that there are.
func stays(rs *appsv1.ReplicaSet) int32 {
	if !deleted(rs) {
		return 0
	}
	return min(size(rs), max(0, rs.Status.Replicas))
}

// keptPods is how many pods ReplicaSets that are being deleted have above their sizes.
func (f *facts) keptPods() int32 {
	var n int32
	for _, rs := range f.ReplicaSets {
		if deleted(rs) {
			n += max(0, rs.Status.Replicas-size(rs))
		}
	}
	return n
}

// shadowed reports whether a Deployment must not be handed back at a template. A ReplicaSet
// of it is being deleted, and another one has its pods. The native controller takes the
// older one for the new one, and would take pods from the other one.
func (f *facts) shadowed(template *corev1.PodTemplateSpec) bool {
	live := findReplicaSet(f.ReplicaSets, template)
	if live == nil || f.replicas == 0 {
		return false
	}
	for _, rs := range f.ReplicaSets {
		if deleted(rs) && plan.EqualTemplate(&rs.Spec.Template, template) && older(rs, live) < 0 {
			return true
		}
	}
	return false
}

// scaling reports whether the native controller is on its way to N with the one active
// ReplicaSet, or with one if none is active. It would go on with that under the hold.
func (f *facts) scaling() bool {
	var active []*appsv1.ReplicaSet
	for _, rs := range f.ReplicaSets {
		if size(rs) > 0 {
			active = append(active, rs)
		}
	}
	return len(active) == 1 && size(active[0]) != f.replicas || len(active) == 0 && f.replicas > 0
}

// severalActive reports whether more than one ReplicaSet has a size.
func (f *facts) severalActive() bool {
	n := 0
	for _, rs := range f.ReplicaSets {
		if size(rs) > 0 {
			n++
		}
	}
	return n > 1
}

// seen reports whether the native controller has acted on what is there.
func (f *facts) seen() bool { return f.Deployment.Status.ObservedGeneration >= f.Deployment.Generation }

// rollingNatively reports whether the native controller has not finished what the
// Deployment's template says, as `kubectl rollout status` tells it.
func (f *facts) rollingNatively() bool {
	s := &f.Deployment.Status
	return s.ObservedGeneration < f.Deployment.Generation || s.UpdatedReplicas < f.replicas || s.Replicas > s.UpdatedReplicas || s.AvailableReplicas < s.UpdatedReplicas
}
