// Package invariants judges from outside whether a release went as it must. The events of a
// namespace go in, in the order in which the API server made them, and the invariants that
// were broken come out. It has no client and no clock, so that a test can write the events.
package invariants

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// lag is how old the observation may be that a write was decided on. Every write is
// conditional on the version of the one object that it changes, and on nothing else. The
// controller may shrink one ReplicaSet while a pod of another dies, or while another user
// sets another N. Within lag of such a change both what was and what is count.
const lag = 5 * time.Second

// nativeLag is how old an observation of the native controller may be.
const nativeLag = 2 * time.Second

// Judge knows what must never be broken by what happens in a namespace. It is
// fed with every event, in the order in which the API server made them,
// and knows no client and no clock.
//
// I1. When Tranche makes a ReplicaSet smaller, the pods of the Deployment are counted as
// they stand at that very version. A pod is available when it is Ready for
// minReadySeconds and neither terminating nor ended. The pods above its size are taken
// from every ReplicaSet, in the worst way that the ReplicaSet controller may. Pods that
// are not ready go first, then available ones. If that takes an available pod, N − U must
// be left. So a decrease is judged by what it lets happen, whatever pod goes in the end.
// Pods that others have deleted or broken within lag count as left: Tranche could not
// know. Others are the cause of a pod's end unless its ReplicaSet has more pods than its
// size. They are also the cause if this pod was ready and the ReplicaSet has one that is
// not.
//
// I2. When a ReplicaSet of a held Deployment grows, the sizes add up to N + S
// at most (N + 1 where S is 0). That is not judged within lag of what the native
// controller did to another one, where others are the cause of that (H26).
//
// I3, I5. While a release is under way no field manager makes its ReplicaSet larger than
// a limit. It is that of the furthest step that its gates could open by now. The ledger
// knows that from what users gave, and not from the status. Users gave templates,
// commits, steps and approvals of spec, approvals written to the status, and pauses,
// counted from pods. A ReplicaSet that is neither stable nor of what spec brings is not
// made larger by Tranche at all. A hand-back is judged as growth to N.
//
// I7. A hand-back is the write by Tranche that takes the label away. It leaves the
// Deployment unpaused, with the manifest's strategy, and nothing of Tranche's on it or
// its ReplicaSets. An only active ReplicaSet of size N says so in its annotations (H11),
// then and whenever the native controller has seen the Deployment. No ReplicaSet ever
// bears anything of Tranche's.
//
// I8. A held Deployment is never Recreate and not paused (H8).
//
// I10. The native controller resizes no ReplicaSet of a held Deployment. In the middle of
// a native rollout, a write that it decided on before the hold may come after it. That is
// not judged until its status has the generation of the hold. It writes that at the end
// of the first sync that has read the hold. Tranche moves no pod before that. I3 is
// judged, all the same. If there is nothing to split, the native controller may follow a
// new N. It sees no active ReplicaSet then, or one. It may follow N down, as Tranche
// would, and up with a revision that has no closed gate before it.
//
// An action of the native controller within lag is not Tranche's if another field manager
// opened the hold (H7). The same holds if one deleted a ReplicaSet that has pods, or
// scaled one down so that at most one has pods (H1, H26). It also holds if others set N to
// 0 and, before Tranche could hand back, to more (H4). The native controller, and not
// Tranche, has then taken the pods of the only active ReplicaSet.
type Judge struct {
	deployments map[types.UID]*deployment
	sets        map[types.UID]*appsv1.ReplicaSet
	sizedAt     map[types.UID]int32 // N when a ReplicaSet got its size
	activeSince map[types.UID]time.Time
	pods        map[types.UID]*pod
	plans       map[types.UID]*plannedRelease

	ledgers map[string]*ledger // by the name of the Deployment

	now    time.Time
	broken []Breach
	judged map[string]int // how often each invariant was put to the test
	fights int
}

// Change is an event: an object as the API server stores it, or as it was when it went.
type Change struct {
	At     time.Time
	Object client.Object
	Gone   bool
	// Found: what led to it is not known. It is no event but what a list has shown,
	// or an event of one kind while another kind's were not to be had.
	Found bool
}

// Breach is an invariant that was broken, of a Deployment.
type Breach struct{ Deployment, What string }

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

// New returns a judge that has seen nothing.
func New() *Judge {
	return &Judge{
		deployments: map[types.UID]*deployment{}, sets: map[types.UID]*appsv1.ReplicaSet{},
		sizedAt: map[types.UID]int32{}, activeSince: map[types.UID]time.Time{}, pods: map[types.UID]*pod{}, plans: map[types.UID]*plannedRelease{}, ledgers: map[string]*ledger{}, judged: map[string]int{},
	}
}

// See judges one event.
func (v *Judge) See(c Change) {
	v.now = c.At
	name := v.WorkloadOf(c.Object)
	v.openGates(name) // time has passed since the last event
	switch o := c.Object.(type) {
	case *appsv1.Deployment:
		v.seeDeployment(o, c)
	case *appsv1.ReplicaSet:
		v.seeReplicaSet(o, c)
	case *corev1.Pod:
		v.seePod(o, c)
	case *v1alpha1.BatchRelease:
		v.seeRelease(o, c)
	}
	v.openGates(name)
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

func (v *Judge) seeRelease(o *v1alpha1.BatchRelease, c Change) {
	r := v.plans[o.UID]
	var before *v1alpha1.BatchRelease
	if r == nil {
		r = &plannedRelease{}
		r.steps.is, r.strategy.is = o.Spec.Strategy.Steps, o.Spec.DeploymentStrategy
		r.paused.is, r.review.is, r.signed.is = o.Spec.Paused, o.Spec.ReviewApprovals, o.Spec.RequireSignedApprovals
		v.plans[o.UID] = r
	} else {
		before = r.BatchRelease
	}
	r.BatchRelease = o
	r.steps.set(o.Spec.Strategy.Steps, v.now)
	r.strategy.set(o.Spec.DeploymentStrategy, v.now)
	r.paused.set(o.Spec.Paused, v.now)
	r.review.set(o.Spec.ReviewApprovals, v.now)
	r.signed.set(o.Spec.RequireSignedApprovals, v.now)
	if r.goneAt.IsZero() && (c.Gone || o.DeletionTimestamp != nil) { // a finalizer may keep it
		r.goneAt = v.now
	}
	v.record(o, before, c)
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

func (v *Judge) seeDeployment(o *appsv1.Deployment, c Change) {
	d := v.deployments[o.UID]
	if c.Gone {
		delete(v.deployments, o.UID)
		return
	}
	if d == nil {
		d = &deployment{Deployment: o}
		d.replicas.is = *o.Spec.Replicas
		v.deployments[o.UID] = d
	}
	before := d.Deployment
	d.Deployment = o
	d.replicas.set(*o.Spec.Replicas, v.now)
	if Held(o) {
		d.governed = true
		v.judged["I8"]++
		if !o.Spec.Paused && o.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
			v.fail(d, "I8: held, Recreate and not paused")
		}
		if !engine.Held(o) || Held(before) && !engine.Held(before) {
			d.loose = v.now
		}
		if !Held(before) || d.heldSince.IsZero() {
			d.heldSince = v.now
			if slices.ContainsFunc(v.active(d), func(rs *appsv1.ReplicaSet) bool { return !plan.EqualTemplate(&rs.Spec.Template, &before.Spec.Template) }) {
				d.heldOver = o.Generation
			}
		}
		v.recordHold(d, before)
		return
	}
	if Held(before) {
		d.heldUntil = v.now
	}
	changed := Held(before) || !plan.EqualTemplate(&before.Spec.Template, &o.Spec.Template) // at 0 replicas it needs no hold
	if changed && Writer(o, before.ManagedFields) == v1alpha1.ManagerRollout {
		v.ledgerOf(o.Name).delivered = &o.Spec.Template
		switch {
		case c.Found:
		case Held(before):
			v.judgeHandBack(d)
		default:
			v.judgeDelivered(d)
		}
	}
	d.strategy = o.Spec.Strategy.DeepCopy()
	v.settle(d, c.Found)
	if d.governed && o.Status.ObservedGeneration >= o.Generation && !o.Spec.Paused {
		v.judgeSizeAnnotations(d, false)
	}
}

// judgeHandBack checks I7 at the write that takes the label away.
func (v *Judge) judgeHandBack(d *deployment) {
	v.judged["I7"]++
	if d.Spec.Paused {
		v.fail(d, "I7: handed back, and still paused")
	}
	if wanted := v.strategies(d); len(wanted) > 0 && !slices.ContainsFunc(wanted, func(s *appsv1.DeploymentStrategy) bool {
		return equality.Semantic.DeepEqual(complete(s), complete(&d.Spec.Strategy))
	}) {
		v.fail(d, "I7: handed back with strategy %s, and the manifest's is %s", encode(d.Spec.Strategy), encode(wanted[0]))
	}
	for _, e := range d.ManagedFields {
		if e.Manager == v1alpha1.ManagerRollout && (owns(e, "f:metadata", "f:labels", "f:"+v1alpha1.LabelHeld) || owns(e, "f:spec", "f:paused")) {
			v.fail(d, "I7: %s still owns the hold's fields", e.Manager)
		}
	}
	v.judgeDelivered(d)
	v.judgeMarks(d, "Deployment", d.Deployment, nil)
	for _, rs := range v.setsOf(d) {
		v.judgeMarks(d, "ReplicaSet", rs, &rs.Spec.Template)
	}
	v.judgeSizeAnnotations(d, true)
}

// ofPeople are the annotations that people write in their manifests.
var ofPeople = []string{v1alpha1.AnnotationReconcile, v1alpha1.AnnotationPrune, v1alpha1.AnnotationForce}

// judgeMarks checks that an object bears nothing of ours.
func (v *Judge) judgeMarks(d *deployment, kind string, o client.Object, t *corev1.PodTemplateSpec) {
	marks := map[string]map[string]string{"label": o.GetLabels(), "annotation": o.GetAnnotations()}
	if t != nil {
		marks["label of the template"], marks["annotation of the template"] = t.Labels, t.Annotations
	}
	for _, what := range slices.Sorted(maps.Keys(marks)) {
		for _, k := range slices.Sorted(maps.Keys(marks[what])) {
			if strings.HasPrefix(k, v1alpha1.Group+"/") && !slices.Contains(ofPeople, k) {
				v.fail(d, "I7: %s %s on %s %s", what, k, kind, o.GetName())
			}
		}
	}
}

// judgeSizeAnnotations checks H11: with an only active ReplicaSet of size N
// that says otherwise the native controller never makes another one.
func (v *Judge) judgeSizeAnnotations(d *deployment, surge bool) {
	active := slices.DeleteFunc(v.setsOf(d), func(rs *appsv1.ReplicaSet) bool { return *rs.Spec.Replicas == 0 })
	if len(active) != 1 || *active[0].Spec.Replicas != *d.Spec.Replicas {
		return
	}
	rs := active[0]
	desired, maximum := rs.Annotations[engine.AnnotationDesiredReplicas], rs.Annotations[engine.AnnotationMaxReplicas]
	v.judged["H11"]++
	var wantDesired, wantMaximum []string
	for _, n := range d.replicas.within(v.now) {
		s, _, err := plan.Bounds(&d.Spec.Strategy, n)
		if err != nil {
			continue
		}
		wantDesired, wantMaximum = append(wantDesired, strconv.Itoa(int(n))), append(wantMaximum, strconv.Itoa(int(n+s)))
	}
	surge = surge && v.now.Sub(d.tookOver) > lag // under the hold the native controller writes N, and knows no surge
	if !slices.Contains(wantDesired, desired) || surge && !slices.Contains(wantMaximum, maximum) {
		v.fail(d, "I7: the only ReplicaSet with pods, %s, has desired-replicas %q and max-replicas %q; want %s and %s", rs.Name, desired, maximum, wantDesired[0], wantMaximum[0])
	}
}

func (v *Judge) seeReplicaSet(o *appsv1.ReplicaSet, c Change) {
	old := v.sets[o.UID]
	d := v.ownerOf(o)
	if c.Gone {
		if d != nil && *o.Spec.Replicas > 0 {
			d.loose = v.now // with one active set left, the native controller takes over
			d.lose(v.left(o, *o.Spec.Replicas, math.MaxInt32), v.now)
		}
		delete(v.sets, o.UID)
		delete(v.sizedAt, o.UID)
		delete(v.activeSince, o.UID)
		if d != nil {
			v.settle(d, c.Found)
		}
		return
	}
	var from int32
	if old != nil {
		from = *old.Spec.Replicas
	}
	active := v.active(d)
	v.sets[o.UID] = o
	if from == 0 && *o.Spec.Replicas > 0 {
		v.activeSince[o.UID] = v.now
	}
	if d == nil || c.Found {
		v.sizedAt[o.UID] = *o.Spec.Replicas
		if d != nil {
			v.settle(d, c.Found)
		}
		return
	}
	defer v.settle(d, false)
	if old == nil || old.Generation != o.Generation {
		v.judgeMarks(d, "ReplicaSet", o, &o.Spec.Template)
	}
	to := *o.Spec.Replicas
	if to == from {
		return
	}
	defer func() { v.sizedAt[o.UID] = *d.Spec.Replicas }()
	by := resizer(old, o)
	if v.provoked(d, from, to, by) {
		d.emptied, d.tookOver = false, v.now
		return
	}
	d.emptied = by == NativeManager && to == 0 && len(v.active(d)) == 0 && slices.Contains(d.replicas.within(v.now), 0)
	if Held(d.Deployment) {
		v.judgeFight(d, o, from, by, active)
	}
	if to < from && by == v1alpha1.ManagerRollout {
		v.judgeTaken(d, o, from)
	}
	if to > from {
		v.judgeTotal(d, o, from)
		v.judgeTarget(d, o, from, by)
	}
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

// judgeFight checks I10.
func (v *Judge) judgeFight(d *deployment, rs *appsv1.ReplicaSet, from int32, by string, active []*appsv1.ReplicaSet) {
	v.judged["I10"]++
	if by != NativeManager || d.Status.ObservedGeneration < d.heldOver {
		return
	}
	to := *rs.Spec.Replicas
	alone := !slices.ContainsFunc(active, func(other *appsv1.ReplicaSet) bool {
		return other.UID != rs.UID && v.now.Sub(v.activeSince[other.UID]) > nativeLag
	})
	wanted := d.replicas.within(v.now)
	follows := slices.Contains(wanted, to) && (to != v.sizedAt[rs.UID] || len(wanted) > 1)
	if alone && follows && (to < from || !v.gated(d, rs)) {
		return
	}
	v.fights++
	v.fail(d, "I10: the native controller resized ReplicaSet %s of a held Deployment from %d to %d", rs.Name, from, to)
}

// gated reports whether a ReplicaSet has a closed gate before it.
func (v *Judge) gated(d *deployment, rs *appsv1.ReplicaSet) bool {
	l, p := v.ledgerOf(d.Name), v.planOf(d, false)
	r := l.current()
	return p != nil && r != nil && l.stable != nil && r.matches(&rs.Spec.Template) && !l.free(&rs.Spec.Template, v.now) && !r.whole(p.Spec.Strategy.Steps)
}

func underWay(p v1alpha1.ReleasePhase) bool {
	return p == v1alpha1.PhaseInitial || p == v1alpha1.PhaseRollingUpdate
}

// judgeTotal checks I2.
func (v *Judge) judgeTotal(d *deployment, rs *appsv1.ReplicaSet, from int32) {
	if !Held(d.Deployment) || v.now.Sub(d.tookOver) <= lag {
		return // the native controller filled another one meanwhile
	}
	v.judged["I2"]++
	var total int32
	for _, rs := range v.setsOf(d) {
		total += *rs.Spec.Replicas
	}
	if most, _ := v.bounds(d); total > most {
		v.fail(d, "I2: ReplicaSet %s from %d to %d makes %d pods, more than %d", rs.Name, from, *rs.Spec.Replicas, total, most)
	}
}

// judgeTarget checks I3 and I5, by the ledger. Native growth of a Deployment that is
// not held follows what others wrote to it; a hand-back is judged by itself.
func (v *Judge) judgeTarget(d *deployment, rs *appsv1.ReplicaSet, from int32, by string) {
	l, p := v.ledgerOf(d.Name), v.planOf(d, false)
	t := &rs.Spec.Template
	if p == nil || p.UID != l.plan || l.current() == nil || l.stable == nil || !Held(d.Deployment) && by != v1alpha1.ManagerRollout || l.free(t, v.now) || leftAlone(d) {
		return
	}
	limit, first, of := v.limitOf(d, p, l, t)
	if by == NativeManager && !l.current().matches(t) {
		return // it follows N, or I10 is broken
	}
	if of == nil {
		if by == v1alpha1.ManagerRollout {
			v.fail(d, "I3: ReplicaSet %s from %d to %d is neither stable nor what spec brings", rs.Name, from, *rs.Spec.Replicas)
		}
		return
	}
	v.judged["I3"]++
	if *rs.Spec.Replicas > first {
		v.judged["I5"]++
	}
	if *rs.Spec.Replicas <= limit {
		return
	}
	v.fail(d, "I3: ReplicaSet %s from %d to %d by %s, and the limit is %d: %s", rs.Name, from, *rs.Spec.Replicas, by, limit, of)
	if a := p.Spec.Approval; a != nil && !v.approved(d, of, l.steps, of.position) {
		v.fail(d, "I5: the approval of step %d of %s, commit %.12q, is not for step %d of this release", a.Step, a.Revision, a.Commit, of.position)
	}
}

// limitOf returns how many pods of a template the gates allow, and how many they did
// before the first one opened. It is that of the release which allows most.
func (v *Judge) limitOf(d *deployment, p *plannedRelease, l *ledger, t *corev1.PodTemplateSpec) (limit, first int32, of *release) {
	replicas, plans := d.replicas.within(v.now), p.steps.within(v.now)
	for _, r := range l.lately(v.now) {
		if !r.matches(t) {
			continue
		}
		if allowed := r.allowed(plans, replicas); of == nil || allowed > limit {
			limit, of = allowed, r
		}
		first = max(first, (&release{}).allowed(plans, replicas))
	}
	return limit, first, of
}

// leftAlone reports whether a release that is under way goes on whatever spec brings;
// the ledger has only what spec brings.
func leftAlone(d *deployment) bool {
	return d.Annotations[v1alpha1.AnnotationReconcile] == v1alpha1.AnnotationReconcileDisabled
}

// judgeDelivered checks I3 at a hand-back: the native controller brings all pods to
// the template that it is handed.
func (v *Judge) judgeDelivered(d *deployment) {
	l, p := v.ledgerOf(d.Name), v.planOf(d, false)
	t := &d.Spec.Template
	if p == nil || p.UID != l.plan || l.current() == nil || l.stable == nil || l.free(t, v.now) || leftAlone(d) {
		return
	}
	for _, r := range []*revision{l.stable, l.last} {
		if r != nil && covers(t, r.template) {
			return // admission has added to it
		}
	}
	if v.planOf(d, true) != nil {
		return // it is for the plan that was deleted, and the next one has not been seen
	}
	n := *d.Spec.Replicas
	var size int32
	for _, rs := range v.active(d) {
		if plan.EqualTemplate(&rs.Spec.Template, t) {
			size += *rs.Spec.Replicas
		}
	}
	limit, _, of := v.limitOf(d, p, l, t)
	switch {
	case of == nil:
		v.fail(d, "I3: handed back with a template that is neither stable nor what spec brings")
	case n > 0 && (size >= n || limit >= n), n == 0 && of.whole(p.Spec.Strategy.Steps):
		v.judged["I3"]++
	default:
		v.fail(d, "I3: handed back with %d of %d pods, and the limit is %d: %s", size, n, limit, of)
	}
}

// judgeTaken checks I1.
func (v *Judge) judgeTaken(d *deployment, rs *appsv1.ReplicaSet, from int32) {
	v.judged["I1"]++
	var before, after, lost int32
	for _, other := range v.setsOf(d) {
		size, ready := *other.Spec.Replicas, int32(math.MaxInt32)
		if other.UID == rs.UID && rs.Status.ObservedGeneration > 0 {
			ready = rs.Status.ReadyReplicas
		}
		after += v.left(other, size, ready)
		if other.UID == rs.UID {
			size = from
		}
		before += v.left(other, size, ready)
	}
	for _, at := range d.lost {
		if v.now.Sub(at) <= lag {
			lost++
		}
	}
	if _, least := v.bounds(d); after < before && after+lost < least {
		v.fail(d, "I1: ReplicaSet %s from %d to %d lets %d of %d available pods be left, fewer than %d (%d were lately lost otherwise)",
			rs.Name, from, *rs.Spec.Replicas, after, before, least, lost)
	}
}

// left is how many pods of a ReplicaSet are sure to be available once it has a size. Pods
// that are not ready go first, then available ones. At most so many count as ready. A pod
// that the status of the written version does not count became ready a moment ago, and no
// controller could know of it.
func (v *Judge) left(rs *appsv1.ReplicaSet, size, most int32) int32 {
	var pods, ready, available int32
	for _, p := range v.pods {
		if p.set != rs.UID || !lives(p.Pod) {
			continue
		}
		pods++
		if since := readySince(p.Pod); since != nil {
			ready++
			if !since.Add(time.Duration(rs.Spec.MinReadySeconds) * time.Second).After(v.now) {
				available++
			}
		}
	}
	ready = min(ready, most)
	available = min(available, ready)
	excess := max(0, pods-size)
	return max(0, available-max(0, excess-(pods-ready)))
}

func (v *Judge) seePod(o *corev1.Pod, c Change) {
	owner := metav1.GetControllerOf(o)
	if owner == nil {
		return
	}
	old := v.pods[o.UID]
	if rs := v.sets[owner.UID]; old != nil && rs != nil {
		v.countLost(rs, old.Pod, o, c)
	}
	if c.Gone {
		delete(v.pods, o.UID)
		return
	}
	v.pods[o.UID] = &pod{o, owner.UID}
}

// countLost keeps the time at which a pod that was ready is lost, unless its
// ReplicaSet is known to have had to have fewer.
func (v *Judge) countLost(rs *appsv1.ReplicaSet, old, now *corev1.Pod, c Change) {
	d := v.ownerOf(rs)
	if d == nil || !lives(old) || readySince(old) == nil || !c.Gone && lives(now) && readySince(now) != nil {
		return
	}
	if !c.Found && (c.Gone || !lives(now)) {
		var pods, unready int32
		for _, p := range v.pods {
			if p.set == rs.UID && lives(p.Pod) {
				pods++
				if readySince(p.Pod) == nil {
					unready++
				}
			}
		}
		if pods > *rs.Spec.Replicas && unready == 0 {
			return // the ReplicaSet controller's choice
		}
	}
	d.lost = append(d.lost, v.now)
}

// lose notes pods that were lost by others.
func (d *deployment) lose(pods int32, now time.Time) {
	for range pods {
		d.lost = append(d.lost, now)
	}
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

// Broken returns the invariants that were broken, in their order.
func (v *Judge) Broken() []Breach { return v.broken }

// Fights returns how often the native controller has resized a ReplicaSet of a held
// Deployment (I10).
func (v *Judge) Fights() int { return v.fights }

// Judged returns how often an invariant was put to the test, by its name.
func (v *Judge) Judged(invariant string) int { return v.judged[invariant] }

func (v *Judge) fail(d *deployment, format string, args ...any) {
	v.broken = append(v.broken, Breach{d.Name, d.Name + ": " + fmt.Sprintf(format, args...)})
}

// Held reports whether Tranche holds a Deployment.
func Held(d *appsv1.Deployment) bool { return v1alpha1.HasHeld(d.Labels) }

func hashOf(rs *appsv1.ReplicaSet) string { return rs.Labels[appsv1.DefaultDeploymentUniqueLabelKey] }

// complete is a strategy as the API server defaults it.
func complete(s *appsv1.DeploymentStrategy) appsv1.DeploymentStrategy {
	c := *s.DeepCopy()
	if c.Type == "" {
		c.Type = appsv1.RollingUpdateDeploymentStrategyType
	}
	if c.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return c
	}
	if c.RollingUpdate == nil {
		c.RollingUpdate = &appsv1.RollingUpdateDeployment{}
	}
	quarter := intstr.FromString("25%")
	c.RollingUpdate.MaxSurge = ptr.To(ptr.Deref(c.RollingUpdate.MaxSurge, quarter))
	c.RollingUpdate.MaxUnavailable = ptr.To(ptr.Deref(c.RollingUpdate.MaxUnavailable, quarter))
	return c
}

func encode(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// NativeManager is the field manager of the native Deployment controller.
const NativeManager = "kube-controller-manager"

// resizer returns the field manager that gave a ReplicaSet its size: the owner of
// spec.replicas. A write that changes the value takes it from its last owner. The times
// of managedFields would not do: they are in seconds.
func resizer(old, rs *appsv1.ReplicaSet) string {
	for _, e := range rs.ManagedFields {
		if owns(e, "f:spec", "f:replicas") {
			return e.Manager
		}
	}
	return Writer(rs, managedFields(old))
}

// Writer returns the field manager that has written an object other than its status. Its
// entry is the latest of those that are not as before. If two are of the same second, it
// is the one that has grown, since the other lost fields to it.
func Writer(o client.Object, before []metav1.ManagedFieldsEntry) string {
	var last metav1.ManagedFieldsEntry
	var lastGrown bool
	for _, e := range o.GetManagedFields() {
		if e.Subresource == "status" || e.Time == nil {
			continue
		}
		was := slices.IndexFunc(before, func(b metav1.ManagedFieldsEntry) bool {
			return b.Manager == e.Manager && b.Operation == e.Operation && b.Subresource == e.Subresource
		})
		if was >= 0 && equality.Semantic.DeepEqual(before[was], e) {
			continue
		}
		grown := was < 0 || len(fieldsOf(e)) >= len(fieldsOf(before[was]))
		if last.Time == nil || last.Time.Before(e.Time) || last.Time.Equal(e.Time) && (grown || !lastGrown) {
			last, lastGrown = e, grown
		}
	}
	if last.Manager == "" && len(before) > 0 {
		return Writer(o, nil)
	}
	return last.Manager
}

func managedFields(rs *appsv1.ReplicaSet) []metav1.ManagedFieldsEntry {
	if rs == nil {
		return nil
	}
	return rs.ManagedFields
}

func fieldsOf(e metav1.ManagedFieldsEntry) []byte {
	if e.FieldsV1 == nil {
		return nil
	}
	return e.FieldsV1.GetRawBytes()
}

// owns reports whether an entry has a field, by its path in FieldsV1.
func owns(e metav1.ManagedFieldsEntry, path ...string) bool {
	raw := fieldsOf(e)
	for _, p := range path {
		var fields map[string]json.RawMessage
		if json.Unmarshal(raw, &fields) != nil || fields[p] == nil {
			return false
		}
		raw = fields[p]
	}
	return true
}
