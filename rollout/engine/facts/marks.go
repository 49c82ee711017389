package facts

import (
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
)

// The annotations of the native Deployment controller on ReplicaSets.
const (
	AnnotationRevision        = "deployment.kubernetes.io/revision"
	AnnotationDesiredReplicas = "deployment.kubernetes.io/desired-replicas"
)

// Resized reports whether the size of the Deployment has changed since one of its
// ReplicaSets got its own.
func (f *Facts) Resized() bool { return slices.ContainsFunc(f.ReplicaSets, f.isResized) }

// isResized reports whether a ReplicaSet with a size was desired for another size of the
// Deployment.
func (f *Facts) isResized(rs *appsv1.ReplicaSet) bool {
	desired, ok := rs.Annotations[AnnotationDesiredReplicas]
	return ok && Size(rs) > 0 && desired != strconv.Itoa(int(f.Replicas))
}

// Marked returns the ReplicaSets of a native Deployment that have all its pods and are
// desired otherwise. A hold that has not followed its mark leaves one (H6). The native
// controller takes it for a new N. If it is the only active one, the native controller never
// writes its annotations, and rolls out no template until N changes (H11).
//
// With several active it writes them at its next sync, as it does for a new N. They are left
// to it until it has seen the Deployment. Nothing is marked before there is a record.
func (f *Facts) Marked() []*appsv1.ReplicaSet {
	if f.Deployment.DeletionTimestamp != nil || f.Touched() || len(f.Records) == 0 || f.SeveralActive() && !f.Seen() {
		return nil
	}
	var marked []*appsv1.ReplicaSet
	for _, rs := range f.ReplicaSets {
		if f.isResized(rs) && Size(rs) == f.Replicas {
			marked = append(marked, rs)
		}
	}
	return marked
}

// MaxRevision is the highest revision number among ReplicaSets; one that is
// not a number counts as 0, as with the native controller.
func MaxRevision(sets []*appsv1.ReplicaSet) int64 {
	var highest int64
	for _, rs := range sets {
		if n, err := strconv.ParseInt(rs.Annotations[AnnotationRevision], 10, 64); err == nil {
			highest = max(highest, n)
		}
	}
	return highest
}
