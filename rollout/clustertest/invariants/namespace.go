package invariants

import (
	"math"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// completes reports whether a user has completed step i in the status, where no review
// and no signature is asked for.
func (p *plannedRelease) completes(r *release, steps []intstr.IntOrString, i int, now time.Time) bool {
	return r.completed == i && sameSteps(r.completes, steps, i+1) &&
		slices.Contains(p.signed.within(now), false) && slices.Contains(p.review.within(now), false)
}

// passes reports whether the gate of step i may open when its pods have been available for
// that long. It takes an approval, or that a pause is over. A step with analysis takes its
// duration, and an approval only where the plan asks for one, or an override (I11).
func (p *plannedRelease) passes(i int, lasted time.Duration, approved, overridden bool, now time.Time) bool {
	over := func(d time.Duration) bool { return lasted >= d-pauseSlack }
	acts := p.Spec.Strategy.Analysis != nil && p.Spec.Strategy.Analysis.Mode != v1alpha1.AnalysisObserve
	return slices.ContainsFunc(p.steps.within(now), func(steps []v1alpha1.Step) bool {
		switch {
		case i >= len(steps)-1:
			return approved
		case acts && steps[i].Analysis != nil:
			return overridden || over(steps[i].Analysis.Duration.Duration) && (approved || !steps[i].Analysis.Approval)
		}
		return approved || steps[i].Pause != nil && over(steps[i].Pause.Duration.Duration)
	})
}

// targetOf is the fewest pods that the last of these steps may want, of those that gates
// have opened; negative at 0 replicas.
func (n *namespace) targetOf(d *deployment, steps, opened []intstr.IntOrString) int32 {
	target := int32(-1)
	for _, replicas := range d.replicas.within(n.now) {
		if replicas == 0 {
			continue
		}
		wants := most(steps, replicas)
		if len(opened) > 0 {
			wants = min(wants, most(opened, replicas))
		}
		for _, s := range append(n.strategies(d), nil) {
			if surge, _, err := plan.Bounds(s, replicas); err == nil && surge == 0 {
				wants = min(wants, replicas-1) // one other stays before the last step
			}
		}
		if target < 0 || wants < target {
			target = wants
		}
	}
	return target
}

// namespace is what the events have shown of the objects of a namespace.
type namespace struct {
	deployments map[types.UID]*deployment
	sets        map[types.UID]*appsv1.ReplicaSet
	sizedAt     map[types.UID]int32 // N when a ReplicaSet got its size
	activeSince map[types.UID]time.Time
	pods        map[types.UID]*pod
	plans       map[types.UID]*plannedRelease

	now time.Time // of the last event
	// unguarded: no policy keeps other users from ReplicaSets.
	unguarded bool
	// older: a version leads that does not know the label of a hold on ReplicaSets.
	older bool
}

func newNamespace() *namespace {
	return &namespace{
		deployments: map[types.UID]*deployment{},
		sets:        map[types.UID]*appsv1.ReplicaSet{},
		sizedAt:     map[types.UID]int32{},
		activeSince: map[types.UID]time.Time{},
		pods:        map[types.UID]*pod{},
		plans:       map[types.UID]*plannedRelease{},
	}
}

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
	// enlarged is when another user last made a ReplicaSet larger, or took the Deployment
	// from one that has pods.
	enlarged time.Time
	// emptied: the native controller took the last pods away as N was 0.
	emptied bool
	// tookOver is when the native controller last resized a ReplicaSet for that reason.
	tookOver time.Time
	// resized is when the native controller last resized a ReplicaSet under the hold. It
	// follows N there, and writes a max-replicas without surge.
	resized time.Time
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

// putRelease takes an event of a BatchRelease, and returns it as it was before.
func (n *namespace) putRelease(o *v1alpha1.BatchRelease, gone bool) (before *v1alpha1.BatchRelease) {
	r := n.plans[o.UID]
	if r == nil {
		r = &plannedRelease{}
		r.steps.is, r.strategy.is = o.Spec.Strategy.Steps, o.Spec.DeploymentStrategy
		r.paused.is, r.review.is, r.signed.is = o.Spec.Paused, o.Spec.ReviewApprovals, o.Spec.RequireSignedApprovals
		n.plans[o.UID] = r
	} else {
		before = r.BatchRelease
	}
	r.BatchRelease = o
	r.steps.set(o.Spec.Strategy.Steps, n.now)
	r.strategy.set(o.Spec.DeploymentStrategy, n.now)
	r.paused.set(o.Spec.Paused, n.now)
	r.review.set(o.Spec.ReviewApprovals, n.now)
	r.signed.set(o.Spec.RequireSignedApprovals, n.now)
	if r.goneAt.IsZero() && (gone || o.DeletionTimestamp != nil) { // a finalizer may keep it
		r.goneAt = n.now
	}
	return before
}

// putDeployment takes an event of a Deployment, and returns it as it was before. That is
// the same at its first event.
func (n *namespace) putDeployment(o *appsv1.Deployment) (d *deployment, before *appsv1.Deployment) {
	d = n.deployments[o.UID]
	if d == nil {
		d = &deployment{Deployment: o}
		d.replicas.is = *o.Spec.Replicas
		n.deployments[o.UID] = d
	}
	before = d.Deployment
	d.Deployment = o
	d.replicas.set(*o.Spec.Replicas, n.now)
	return d, before
}

// noteHold notes since when a Deployment is held, and who else had its hold open.
func (n *namespace) noteHold(d *deployment, before *appsv1.Deployment) {
	d.governed = true
	if !engine.Held(d.Deployment) || Held(before) && !engine.Held(before) {
		d.loose = n.now
	}
	if Held(before) && !d.heldSince.IsZero() {
		return
	}
	d.heldSince = n.now
	another := func(rs *appsv1.ReplicaSet) bool { return !plan.EqualTemplate(&rs.Spec.Template, &before.Spec.Template) }
	if slices.ContainsFunc(n.active(d), another) {
		d.heldOver = d.Generation
	}
}

// putSet takes an event of a ReplicaSet, and returns the size that it had before.
func (n *namespace) putSet(o *appsv1.ReplicaSet) (from int32) {
	if old := n.sets[o.UID]; old != nil {
		from = *old.Spec.Replicas
	}
	n.sets[o.UID] = o
	if from == 0 && *o.Spec.Replicas > 0 {
		n.activeSince[o.UID] = n.now
	}
	return from
}

// removeSet takes the deletion of a ReplicaSet; d is nil where it had no Deployment.
func (n *namespace) removeSet(d *deployment, o *appsv1.ReplicaSet) {
	if d != nil && *o.Spec.Replicas > 0 {
		d.loose = n.now // with one active set left, the native controller takes over
		d.lose(n.left(o, *o.Spec.Replicas, math.MaxInt32), n.now)
	}
	delete(n.sets, o.UID)
	delete(n.sizedAt, o.UID)
	delete(n.activeSince, o.UID)
}

// workloadOf returns the name of the Deployment that an object belongs to.
func (n *namespace) workloadOf(o client.Object) string {
	switch o := o.(type) {
	case *appsv1.Deployment:
		return o.Name
	case *v1alpha1.BatchRelease:
		return o.Spec.WorkloadRef.Name
	case *corev1.Pod:
		if rs := n.sets[ownerUID(o)]; rs != nil {
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
func (n *namespace) planOf(d *deployment, gone bool) *plannedRelease {
	return n.planNamed(d.Namespace, d.Name, gone)
}

func (n *namespace) planNamed(namespace, name string, gone bool) *plannedRelease {
	var found *plannedRelease
	for _, r := range n.plans {
		if r.Namespace != namespace || r.Spec.WorkloadRef.Name != name || r.goneAt.IsZero() == gone || gone && n.now.Sub(r.goneAt) > lag {
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
func (n *namespace) deploymentNamed(name string) *deployment {
	var found *deployment
	for _, d := range n.deployments {
		if d.Name == name && (found == nil || found.CreationTimestamp.Before(&d.CreationTimestamp)) {
			found = d
		}
	}
	return found
}

// strategies are those that a write may have been decided on: the manifest's,
// else what the Deployment had before its hold.
func (n *namespace) strategies(d *deployment) []*appsv1.DeploymentStrategy {
	var all []*appsv1.DeploymentStrategy
	for _, gone := range []bool{false, true} {
		if r := n.planOf(d, gone); r != nil {
			all = append(all, r.strategy.within(n.now)...)
		}
	}
	if d.strategy != nil && (len(all) == 0 || slices.Contains(all, nil)) {
		all = append(all, d.strategy)
	}
	return slices.DeleteFunc(all, func(s *appsv1.DeploymentStrategy) bool { return s == nil })
}

// bounds returns the most pods and the least available ones that a write may
// have been decided on.
func (n *namespace) bounds(d *deployment) (most, least int32) {
	strategies := n.strategies(d)
	if len(strategies) == 0 {
		strategies = []*appsv1.DeploymentStrategy{nil} // the API server's defaults
	}
	for i, replicas := range d.replicas.within(n.now) {
		for j, s := range strategies {
			surge, unavailable, err := plan.Bounds(s, replicas)
			if err != nil {
				continue
			}
			most = max(most, replicas+max(1, surge))
			if floor := replicas - unavailable; i == 0 && j == 0 || floor < least {
				least = floor
			}
		}
	}
	return most, least
}

// provoked reports whether the native controller resizes a ReplicaSet since another user
// made it do so. It notes what others do.
func (n *namespace) provoked(d *deployment, from, to int32, by string) bool {
	if to < from && by != NativeManager && by != v1alpha1.ManagerRollout {
		if Held(d.Deployment) {
			d.lose(from-to, n.now)
		}
		d.shrunk = n.now // also just before a hold
	}
	if to < from && n.now.Sub(d.shrunk) <= lag && len(n.active(d)) < 2 {
		d.loose = n.now // with one active set left, and not of size N, the native controller takes over (H26)
	}
	if enlarged(n, d, from, to, by) {
		return false
	}
	if by != NativeManager {
		return false
	}
	return n.now.Sub(d.loose) <= lag || d.emptied && to > from && d.bounced(n.now) || to == 0 && feigned(n, d)
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

func (n *namespace) ownerOf(rs *appsv1.ReplicaSet) *deployment {
	if owner := metav1.GetControllerOf(rs); owner != nil {
		return n.deployments[owner.UID]
	}
	return nil
}

// setsOf returns the ReplicaSets that a Deployment controls.
func (n *namespace) setsOf(d *deployment) []*appsv1.ReplicaSet {
	var sets []*appsv1.ReplicaSet
	for _, rs := range n.sets {
		if d != nil && metav1.IsControlledBy(rs, d.Deployment) {
			sets = append(sets, rs)
		}
	}
	slices.SortFunc(sets, func(a, b *appsv1.ReplicaSet) int { return strings.Compare(a.Name, b.Name) })
	return sets
}

func (n *namespace) active(d *deployment) []*appsv1.ReplicaSet {
	return slices.DeleteFunc(n.setsOf(d), func(rs *appsv1.ReplicaSet) bool { return *rs.Spec.Replicas == 0 })
}

// sizeOf returns the size of a Deployment's ReplicaSets of a template.
func (n *namespace) sizeOf(d *deployment, t *corev1.PodTemplateSpec) int32 {
	var size int32
	for _, rs := range n.active(d) {
		if plan.EqualTemplate(&rs.Spec.Template, t) {
			size += *rs.Spec.Replicas
		}
	}
	return size
}

// runsNatively reports whether a Deployment that is not held runs its template on all pods.
func (n *namespace) runsNatively(d *deployment) bool {
	if Held(d.Deployment) || d.Spec.Paused {
		return false
	}
	switch active := n.active(d); len(active) {
	case 0:
		return *d.Spec.Replicas == 0
	case 1:
		return plan.EqualTemplate(&active[0].Spec.Template, &d.Spec.Template)
	default:
		return false
	}
}

// runsAlone reports whether only the ReplicaSet of a Deployment's template has pods, N of
// them or more.
func (n *namespace) runsAlone(d *deployment) bool {
	active := n.active(d)
	return len(active) == 1 && *active[0].Spec.Replicas >= *d.Spec.Replicas && plan.EqualTemplate(&active[0].Spec.Template, &d.Spec.Template)
}

// Held reports whether Tranche holds a Deployment.
func Held(d *appsv1.Deployment) bool { return v1alpha1.HasHeld(d.Labels) }

func hashOf(rs *appsv1.ReplicaSet) string { return rs.Labels[appsv1.DefaultDeploymentUniqueLabelKey] }
