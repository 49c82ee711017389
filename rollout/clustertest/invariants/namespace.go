package invariants

import (
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

type deployment struct {
	*appsv1.Deployment
	replicas past[int32]
	// strategy when it was last not held; nil where that was never seen.
	strategy *appsv1.DeploymentStrategy
	governed bool // it has been held
	// loose is when another user last had the hold half open, or took a ReplicaSet
	// with pods away.
	loose time.Time
	// shrunk is when another user last made a ReplicaSet smaller.
	shrunk time.Time
	// emptied: the native controller took the last pods away as N was 0.
	emptied bool
	// tookOver is when the native controller last resized a ReplicaSet for that reason.
	tookOver time.Time
	// lost is when pods were lost that were available, by others than Tranche.
	lost []time.Time
	// heldSince and heldUntil are when it was last taken and handed back.
	heldSince, heldUntil time.Time
	// heldOver is the generation of a hold that was taken in the middle of a native
	// rollout.
	heldOver int64
}

// plannedRelease is a BatchRelease, with what its spec lately said.
type plannedRelease struct {
	*v1alpha1.BatchRelease
	steps    past[[]v1alpha1.Step]
	strategy past[*appsv1.DeploymentStrategy]
	// paused, review and signed are spec.paused, spec.reviewApprovals and
	// spec.requireSignedApprovals.
	paused, review, signed past[bool]
	goneAt                 time.Time
}

type pod struct {
	*corev1.Pod
	set types.UID
}

// past is a value with the values that it had before, and until when.
type past[T any] struct {
	is  T
	was []was[T]
}

type was[T any] struct {
	value T
	until time.Time
}

func (p *past[T]) set(value T, now time.Time) {
	if !equality.Semantic.DeepEqual(p.is, value) {
		p.was = append(p.was, was[T]{p.is, now})
	}
	p.is = value
}

// within returns what the value is, and what it was within lag.
func (p *past[T]) within(now time.Time) []T {
	values := []T{p.is}
	for _, w := range p.was {
		if now.Sub(w.until) <= lag {
			values = append(values, w.value)
		}
	}
	return values
}

// WorkloadOf returns the name of the Deployment that an object belongs to.
func (v *Judge) WorkloadOf(o client.Object) string {
	switch o := o.(type) {
	case *appsv1.Deployment:
		return o.Name
	case *v1alpha1.BatchRelease:
		return o.Spec.WorkloadRef.Name
	case *corev1.Pod:
		if rs := v.sets[ownerUID(o)]; rs != nil {
			return ownerName(rs)
		}
		return ""
	default:
		return ownerName(o)
	}
}

// planOf returns the release that counts for a Deployment: one of a GitSource, then the
// oldest, then the first by name. One that has gone counts where its deletion may not
// have been seen yet and there is no other.
func (v *Judge) planOf(d *deployment, gone bool) *plannedRelease {
	return v.planNamed(d.Namespace, d.Name, gone)
}

func (v *Judge) planNamed(namespace, name string, gone bool) *plannedRelease {
	var found *plannedRelease
	for _, r := range v.plans {
		if r.Namespace != namespace || r.Spec.WorkloadRef.Name != name || r.goneAt.IsZero() == gone || gone && v.now.Sub(r.goneAt) > lag {
			continue
		}
		if found == nil || comesFirst(r, found) {
			found = r
		}
	}
	return found
}

// comesFirst reports whether a release counts, and not another one.
func comesFirst(r, other *plannedRelease) bool {
	ofGit, othersOfGit := r.Labels["tranche.dev/source"] != "", other.Labels["tranche.dev/source"] != ""
	if ofGit != othersOfGit {
		return ofGit
	}
	return r.CreationTimestamp.Before(&other.CreationTimestamp) || r.CreationTimestamp.Equal(&other.CreationTimestamp) && r.Name < other.Name
}

// deploymentNamed returns the Deployment of a name; nil without one.
func (v *Judge) deploymentNamed(name string) *deployment {
	var found *deployment
	for _, d := range v.deployments {
		if d.Name == name && (found == nil || found.CreationTimestamp.Before(&d.CreationTimestamp)) {
			found = d
		}
	}
	return found
}

// strategies are those that a write may have been decided on: the manifest's,
// else what the Deployment had before its hold.
func (v *Judge) strategies(d *deployment) []*appsv1.DeploymentStrategy {
	var all []*appsv1.DeploymentStrategy
	for _, gone := range []bool{false, true} {
		if r := v.planOf(d, gone); r != nil {
			all = append(all, r.strategy.within(v.now)...)
		}
	}
	if d.strategy != nil && (len(all) == 0 || slices.Contains(all, nil)) {
		all = append(all, d.strategy)
	}
	return slices.DeleteFunc(all, func(s *appsv1.DeploymentStrategy) bool { return s == nil })
}

// bounds returns the most pods and the least available ones that a write may
// have been decided on.
func (v *Judge) bounds(d *deployment) (most, least int32) {
	strategies := v.strategies(d)
	if len(strategies) == 0 {
		strategies = []*appsv1.DeploymentStrategy{nil} // the API server's defaults
	}
	for i, n := range d.replicas.within(v.now) {
		for j, s := range strategies {
			surge, unavailable, err := plan.Bounds(s, n)
			if err != nil {
				continue
			}
			most = max(most, n+max(1, surge))
			if floor := n - unavailable; i == 0 && j == 0 || floor < least {
				least = floor
			}
		}
	}
	return most, least
}

// provoked reports whether the native controller resizes a ReplicaSet since another user
// made it do so. It notes what others do.
func (v *Judge) provoked(d *deployment, from, to int32, by string) bool {
	if to < from && by != NativeManager && by != v1alpha1.ManagerRollout {
		if Held(d.Deployment) {
			d.lose(from-to, v.now)
		}
		d.shrunk = v.now // also just before a hold
	}
	if to < from && v.now.Sub(d.shrunk) <= lag && len(v.active(d)) < 2 {
		d.loose = v.now // with one active set left, and not of size N, the native controller takes over (H26)
	}
	return by == NativeManager && (v.now.Sub(d.loose) <= lag || d.emptied && to > from && d.bounced(v.now))
}

// bounced reports whether N is back from 0, where it was for no longer than lag, since no
// longer than lag.
func (d *deployment) bounced(now time.Time) bool {
	for i, w := range d.replicas.was {
		if i > 0 && w.value == 0 && now.Sub(w.until) <= lag && w.until.Sub(d.replicas.was[i-1].until) <= lag {
			return true
		}
	}
	return false
}

func underWay(p v1alpha1.ReleasePhase) bool {
	return p == v1alpha1.PhaseInitial || p == v1alpha1.PhaseRollingUpdate
}

// leftAlone reports whether a release that is under way goes on whatever spec brings;
// the ledger has only what spec brings.
func leftAlone(d *deployment) bool {
	return d.Annotations[v1alpha1.AnnotationReconcile] == v1alpha1.AnnotationReconcileDisabled
}

// lose notes pods that were lost by others.
func (d *deployment) lose(pods int32, now time.Time) {
	for range pods {
		d.lost = append(d.lost, now)
	}
}

func ownerName(o client.Object) string {
	if owner := metav1.GetControllerOf(o); owner != nil {
		return owner.Name
	}
	return ""
}

func ownerUID(o client.Object) types.UID {
	if owner := metav1.GetControllerOf(o); owner != nil {
		return owner.UID
	}
	return ""
}

func (v *Judge) ownerOf(rs *appsv1.ReplicaSet) *deployment {
	if owner := metav1.GetControllerOf(rs); owner != nil {
		return v.deployments[owner.UID]
	}
	return nil
}

// setsOf returns the ReplicaSets that a Deployment controls.
func (v *Judge) setsOf(d *deployment) []*appsv1.ReplicaSet {
	var sets []*appsv1.ReplicaSet
	for _, rs := range v.sets {
		if d != nil && metav1.IsControlledBy(rs, d.Deployment) {
			sets = append(sets, rs)
		}
	}
	slices.SortFunc(sets, func(a, b *appsv1.ReplicaSet) int { return strings.Compare(a.Name, b.Name) })
	return sets
}

func (v *Judge) active(d *deployment) []*appsv1.ReplicaSet {
	return slices.DeleteFunc(v.setsOf(d), func(rs *appsv1.ReplicaSet) bool { return *rs.Spec.Replicas == 0 })
}

// Held reports whether Tranche holds a Deployment.
func Held(d *appsv1.Deployment) bool { return v1alpha1.HasHeld(d.Labels) }

func hashOf(rs *appsv1.ReplicaSet) string { return rs.Labels[appsv1.DefaultDeploymentUniqueLabelKey] }
