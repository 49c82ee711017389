package engine

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/plan"
)

// This file is about ReplicaSets that are being deleted, and that finalizers keep. The
// native controller takes them for what they were: new or old, and active with a size. The
// ReplicaSet controller makes no pod of them, and takes none away by their size. So none is
// the ReplicaSet of a revision, which gets another one under another name. Theirs is taken.

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

// taken reports whether a ReplicaSet that is being deleted has the name that one of this
// hash would get.
func (f *facts) taken(hash string) bool {
	for _, rs := range f.ReplicaSets {
		if deleted(rs) && rs.Name == NameWithHash(f.Deployment.Name, hash) {
			return true
		}
	}
	return false
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

// unsaturateDeleted keeps ReplicaSets that are being deleted, and that have pods still,
// from passing for saturated (H6). One of the Deployment's template is the new one.
func unsaturateDeleted(d *draft, sets []set, next []int32) {
	for i, s := range sets {
		if deleted(s.rs) && next[i] == s.size && s.size == d.replicas {
			d.unsaturate(s.rs)
		}
	}
}

// deletions names the ReplicaSets that are being deleted and still count. They have a size
// or pods, or are of the revision that the way leads to. It begins with a separator, and is
// empty without any.
func (c *course) deletions() string {
	var b strings.Builder
	for _, rs := range c.ReplicaSets {
		if !deleted(rs) || size(rs) == 0 && rs.Status.Replicas == 0 && !c.goal.equal(&rs.Spec.Template) {
			continue
		}
		fmt.Fprintf(&b, "; ReplicaSet %s is being deleted", rs.Name)
		if len(rs.Finalizers) > 0 {
			fmt.Fprintf(&b, " and kept by finalizers %s", plan.JoinNames(rs.Finalizers))
		}
		if n := rs.Status.Replicas; n > 0 {
			fmt.Fprintf(&b, "; it has %d pods", n)
		}
		if n := rs.Status.TerminatingReplicas; n != nil && *n > 0 {
			fmt.Fprintf(&b, "; %d of its pods are terminating: see their finalizers and nodes", *n)
		}
	}
	return b.String()
}
