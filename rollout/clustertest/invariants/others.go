package invariants

import (
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// This file is about other users who change ReplicaSets of a held Deployment. The policy
// refuses all of that. A judge takes none of it for an excuse before [Judge.Unguarded].

// Unguarded says that no policy keeps other users from ReplicaSets. Their writes, and what
// the native controller makes of them, are then no breach.
func (j *Judge) Unguarded() { j.ns.unguarded = true }

// byOthers reports whether another user than Tranche and the native controller has written.
func byOthers(manager string) bool {
	return manager != NativeManager && manager != v1alpha1.ManagerRollout
}

// enlarged notes that another user has made a ReplicaSet larger, and reports that.
func enlarged(n *namespace, d *deployment, from, to int32, by string) bool {
	if !n.unguarded || to <= from || !byOthers(by) {
		return false
	}
	d.enlarged = n.now
	if len(n.active(d)) < 2 {
		d.loose = n.now // the only active one has another size than N (H1)
	}
	return true
}

// orphaned notes that a ReplicaSet has lost its Deployment. The native controller adopts it
// again. Until then neither controller counts its pods.
func orphaned(n *namespace, old, rs *appsv1.ReplicaSet) {
	if !n.unguarded || old == nil || *old.Spec.Replicas == 0 {
		return
	}
	if d := n.ownerOf(old); d != nil && n.ownerOf(rs) == nil {
		d.loose, d.enlarged = n.now, n.now
		d.lose(n.left(rs, *rs.Spec.Replicas, *rs.Spec.Replicas), n.now)
	}
}

// feigned reports whether another user has made the update revision look saturated (H6).
// The user has written its size, or its annotation desired-replicas.
func feigned(n *namespace, d *deployment) bool {
	if !n.unguarded {
		return false
	}
	return slices.ContainsFunc(n.active(d), func(rs *appsv1.ReplicaSet) bool {
		if !plan.EqualTemplate(&rs.Spec.Template, &d.Spec.Template) || !slices.Contains(d.replicas.within(n.now), *rs.Spec.Replicas) {
			return false
		}
		desired := rs.Annotations[engine.AnnotationDesiredReplicas] == strconv.Itoa(int(*rs.Spec.Replicas))
		return desired && (byOthers(resizer(nil, rs)) || marked(rs, engine.AnnotationDesiredReplicas, time.Time{}))
	})
}

// mismarked reports whether another user has written the size annotations of a ReplicaSet:
// at any time, or within lag.
func mismarked(n *namespace, rs *appsv1.ReplicaSet, lately bool) bool {
	since := time.Time{}
	if lately {
		since = n.now.Add(-lag - time.Second) // the times of managedFields are in whole seconds
	}
	return n.unguarded && (marked(rs, engine.AnnotationDesiredReplicas, since) || marked(rs, engine.AnnotationMaxReplicas, since))
}

// marked reports whether another user has written an annotation of a ReplicaSet since then.
func marked(rs *appsv1.ReplicaSet, annotation string, since time.Time) bool {
	return slices.ContainsFunc(rs.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
		return byOthers(e.Manager) && e.Time != nil && !e.Time.Time.Before(since) && owns(e, "f:metadata", "f:annotations", "f:"+annotation)
	})
}
