package invariants

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/plan"
)

// left is how many pods of a ReplicaSet are sure to be available once it has a size. Pods
// that are not ready go first, then available ones. At most so many count as ready. A pod
// that the status of the written version does not count became ready a moment ago, and no
// controller could know of it.
func (n *namespace) left(rs *appsv1.ReplicaSet, size, most int32) int32 {
	var pods, ready, available int32
	for _, p := range n.pods {
		if p.set != rs.UID || !lives(p.Pod) {
			continue
		}
		pods++
		if since := readySince(p.Pod); since != nil {
			ready++
			if !since.Add(time.Duration(rs.Spec.MinReadySeconds) * time.Second).After(n.now) {
				available++
			}
		}
	}
	ready = min(ready, most)
	available = min(available, ready)
	excess := max(0, pods-size)
	return max(0, available-max(0, excess-(pods-ready)))
}

// countLost keeps the time at which a pod that was ready is lost, unless its
// ReplicaSet is known to have had to have fewer.
func (n *namespace) countLost(rs *appsv1.ReplicaSet, old, now *corev1.Pod, c Change) {
	d := n.ownerOf(rs)
	ends := c.Gone || !lives(now)
	if d == nil || !lives(old) || readySince(old) == nil || !ends && readySince(now) != nil {
		return
	}
	if !c.Found && ends && n.takesReady(rs) {
		return // the ReplicaSet controller's choice
	}
	d.lost = append(d.lost, n.now)
}

// takesReady reports whether the ReplicaSet controller takes a ready pod away: there are
// too many pods, and all of them are ready.
func (n *namespace) takesReady(rs *appsv1.ReplicaSet) bool {
	var pods int32
	for _, p := range n.pods {
		if p.set != rs.UID || !lives(p.Pod) {
			continue
		}
		if readySince(p.Pod) == nil {
			return false
		}
		pods++
	}
	return pods > *rs.Spec.Replicas
}

// lives reports whether the ReplicaSet controller counts a pod.
func lives(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// readySince returns since when a pod is ready; nil where it is not.
func readySince(p *corev1.Pod) *time.Time {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return &c.LastTransitionTime.Time
		}
	}
	return nil
}

// PodState says in a word what a pod counts as.
func PodState(p *corev1.Pod) string {
	switch {
	case !lives(p):
		return "ends"
	case readySince(p) != nil:
		return "ready"
	}
	return "not ready"
}

// tolerated is how many pods of a target a step may lack at its gate.
func (n *namespace) tolerated(d *deployment, target int32) int32 {
	var lacking int32
	for _, s := range n.strategies(d) {
		if _, unavailable, err := plan.Bounds(s, target); err == nil {
			lacking = max(lacking, unavailable)
		}
	}
	return max(0, min(lacking, target-1))
}

// availableSince returns since when each available pod of a release is available, the
// first one first.
func (n *namespace) availableSince(d *deployment, r *release) []time.Time {
	var all []time.Time
	for _, rs := range n.active(d) {
		if !r.matches(&rs.Spec.Template) {
			continue
		}
		var times []time.Time
		for _, p := range n.pods {
			if p.set != rs.UID || !lives(p.Pod) {
				continue
			}
			if since := readySince(p.Pod); since != nil {
				if at := since.Add(time.Duration(rs.Spec.MinReadySeconds) * time.Second); !at.After(n.now) {
					times = append(times, at)
				}
			}
		}
		slices.SortFunc(times, time.Time.Compare)
		all = append(all, times[:min(len(times), int(*rs.Spec.Replicas))]...)
	}
	slices.SortFunc(all, time.Time.Compare)
	return all
}
