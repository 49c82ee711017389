// Package invariants judges from outside whether a release went as it must. The events of a
// namespace go in, in the order in which the API server made them, and the invariants that
// were broken come out. It has no client and no clock, so that a test can write the events.
package invariants

import (
	"fmt"
	"math"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
