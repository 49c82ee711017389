package facts

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

// FindReplicaSet returns the oldest ReplicaSet with this template, then the
// first by name: the one that the native controller takes for the new one (H19). One
// that is being deleted gets no pod, and is none.
func FindReplicaSet(sets []*appsv1.ReplicaSet, t *corev1.PodTemplateSpec) *appsv1.ReplicaSet {
	var found *appsv1.ReplicaSet
	for _, rs := range sets {
		if !Deleted(rs) && plan.EqualTemplate(&rs.Spec.Template, t) && (found == nil || Older(rs, found) < 0) {
			found = rs
		}
	}
	return found
}

func Older(a, b *appsv1.ReplicaSet) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

func Size(rs *appsv1.ReplicaSet) int32 {
	switch {
	case rs == nil:
		return 0
	case rs.Spec.Replicas == nil:
		return 1 // the API server's default
	}
	return *rs.Spec.Replicas
}

func Replicas(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1 // the API server's default
	}
	return *d.Spec.Replicas
}

// Deleted reports whether a ReplicaSet is being deleted.
func Deleted(rs *appsv1.ReplicaSet) bool { return rs != nil && rs.DeletionTimestamp != nil }

// Stays is how many pods a ReplicaSet that is being deleted keeps at any size. Pods that
// are being deleted themselves are not among them. Its size stays as large, so that the
// sum of sizes is no less than the pods that there are.
func Stays(rs *appsv1.ReplicaSet) int32 {
	if !Deleted(rs) {
		return 0
	}
	return min(Size(rs), max(0, rs.Status.Replicas))
}

// KeptPods is how many pods ReplicaSets that are being deleted have above their sizes.
func (f *Facts) KeptPods() int32 {
	var n int32
	for _, rs := range f.ReplicaSets {
		if Deleted(rs) {
			n += max(0, rs.Status.Replicas-Size(rs))
		}
	}
	return n
}

// Shadowed reports whether a Deployment must not be handed back at a template. A ReplicaSet
// of it is being deleted, and another one has its pods. The native controller takes the
// older one for the new one, and would take pods from the other one.
func (f *Facts) Shadowed(template *corev1.PodTemplateSpec) bool {
	live := FindReplicaSet(f.ReplicaSets, template)
	if live == nil || f.Replicas == 0 {
		return false
	}
	for _, rs := range f.ReplicaSets {
		if Deleted(rs) && plan.EqualTemplate(&rs.Spec.Template, template) && Older(rs, live) < 0 {
			return true
		}
	}
	return false
}

// Scaling reports whether the native controller is on its way to N with the one active
// ReplicaSet, or with one if none is active. It would go on with that under the hold.
func (f *Facts) Scaling() bool {
	var active []*appsv1.ReplicaSet
	for _, rs := range f.ReplicaSets {
		if Size(rs) > 0 {
			active = append(active, rs)
		}
	}
	return len(active) == 1 && Size(active[0]) != f.Replicas || len(active) == 0 && f.Replicas > 0
}

// SeveralActive reports whether more than one ReplicaSet has a size.
func (f *Facts) SeveralActive() bool {
	n := 0
	for _, rs := range f.ReplicaSets {
		if Size(rs) > 0 {
			n++
		}
	}
	return n > 1
}

// Seen reports whether the native controller has acted on what is there.
func (f *Facts) Seen() bool { return f.Deployment.Status.ObservedGeneration >= f.Deployment.Generation }

// RollingNatively reports whether the native controller has not finished what the
// Deployment's template says, as `kubectl rollout status` tells it.
func (f *Facts) RollingNatively() bool {
	s := &f.Deployment.Status
	return s.ObservedGeneration < f.Deployment.Generation || s.UpdatedReplicas < f.Replicas || s.Replicas > s.UpdatedReplicas ||
		s.AvailableReplicas < s.UpdatedReplicas
}
