// Package invariants judges from outside whether a release went as it must. The events of a
// namespace go in, in the order in which the API server made them, and the invariants that
// were broken come out. It has no client and no clock, so that a test can write the events.
package invariants

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
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
// counted from pods. It does not know what an analysis has measured. The gate of such a
// step opens after its duration, or by an override (I11). A ReplicaSet that is neither
// stable nor of what spec brings is not made larger by Tranche at all. A hand-back is
// judged as growth to N.
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
	ns      *namespace
	ledgers map[string]*ledger // by the name of the Deployment

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
	return &Judge{ns: newNamespace(), ledgers: map[string]*ledger{}, judged: map[string]int{}}
}

// See judges one event.
func (j *Judge) See(c Change) {
	j.ns.now = c.At
	name := j.WorkloadOf(c.Object)
	j.openGates(name) // time has passed since the last event
	switch o := c.Object.(type) {
	case *appsv1.Deployment:
		j.seeDeployment(o, c)
	case *appsv1.ReplicaSet:
		j.seeReplicaSet(o, c)
	case *corev1.Pod:
		j.seePod(o, c)
	case *v1alpha1.BatchRelease:
		before := j.ns.putRelease(o, c.Gone)
		j.ledgerOf(o.Spec.WorkloadRef.Name).record(o, before, c.Found)
	}
	j.openGates(name)
}

// WorkloadOf returns the name of the Deployment that an object belongs to.
func (j *Judge) WorkloadOf(o client.Object) string { return j.ns.workloadOf(o) }

// ledgerOf returns the ledger of a Deployment of this name.
func (j *Judge) ledgerOf(name string) *ledger {
	l := j.ledgers[name]
	if l == nil {
		l = newLedger(j.ns, name)
		j.ledgers[name] = l
	}
	return l
}

func (j *Judge) openGates(name string) {
	if l := j.ledgers[name]; l != nil {
		l.openGates()
	}
}

func (j *Judge) settle(d *deployment, found bool) {
	if d != nil {
		j.ledgerOf(d.Name).settle(d, found)
	}
}

func (j *Judge) seeDeployment(o *appsv1.Deployment, c Change) {
	if c.Gone {
		delete(j.ns.deployments, o.UID)
		return
	}
	d, before := j.ns.putDeployment(o)
	if Held(o) {
		j.judgeHold(d)
		j.ns.noteHold(d, before)
		j.ledgerOf(o.Name).recordHold(d, before)
		return
	}
	if Held(before) {
		d.heldUntil = j.ns.now
	}
	changed := Held(before) || !plan.EqualTemplate(&before.Spec.Template, &o.Spec.Template) // at 0 replicas it needs no hold
	if changed && Writer(o, before.ManagedFields) == v1alpha1.ManagerRollout {
		j.ledgerOf(o.Name).delivered = &o.Spec.Template
		switch {
		case c.Found:
		case Held(before):
			j.judgeHandBack(d)
		default:
			j.judgeDelivered(d)
		}
	}
	d.strategy = o.Spec.Strategy.DeepCopy()
	j.settle(d, c.Found)
	if d.governed && o.Status.ObservedGeneration >= o.Generation && !o.Spec.Paused {
		j.judgeSizeAnnotations(d, false)
	}
}

func (j *Judge) seeReplicaSet(o *appsv1.ReplicaSet, c Change) {
	d := j.ns.ownerOf(o)
	if c.Gone {
		j.ns.removeSet(d, o)
		j.settle(d, c.Found)
		return
	}
	old, active := j.ns.sets[o.UID], j.ns.active(d)
	from := j.ns.putSet(o)
	orphaned(j.ns, old, o)
	if d == nil || c.Found {
		j.ns.sizedAt[o.UID] = *o.Spec.Replicas
		j.settle(d, c.Found)
		return
	}
	if old == nil || old.Generation != o.Generation || v1alpha1.HasHeld(o.Labels) != v1alpha1.HasHeld(old.Labels) {
		j.judgeMarks(d, "ReplicaSet", o, &o.Spec.Template, j.allowed(d, o))
	}
	if *o.Spec.Replicas != from {
		j.judgeResize(d, o, from, resizer(old, o), active)
		j.ns.sizedAt[o.UID] = *d.Spec.Replicas
	}
	j.settle(d, false)
}

// judgeResize judges a new size of a ReplicaSet. Active are those that had pods before.
func (j *Judge) judgeResize(d *deployment, rs *appsv1.ReplicaSet, from int32, by string, active []*appsv1.ReplicaSet) {
	to := *rs.Spec.Replicas
	if j.ns.provoked(d, from, to, by) {
		d.emptied, d.tookOver = false, j.ns.now
		return
	}
	emptied := by == NativeManager && to == 0 && len(j.ns.active(d)) == 0
	d.emptied = emptied && slices.Contains(d.replicas.within(j.ns.now), 0)
	if Held(d.Deployment) {
		if by == NativeManager {
			d.resized = j.ns.now
		}
		j.judgeFight(d, rs, from, by, active)
	}
	if to < from && by == v1alpha1.ManagerRollout {
		j.judgeTaken(d, rs, from)
	}
	if to > from && (!j.ns.unguarded || !byOthers(by)) {
		j.judgeTotal(d, rs, from)
		j.judgeTarget(d, rs, from, by)
	}
}

func (j *Judge) seePod(o *corev1.Pod, c Change) {
	owner := metav1.GetControllerOf(o)
	if owner == nil {
		return
	}
	old := j.ns.pods[o.UID]
	if rs := j.ns.sets[owner.UID]; old != nil && rs != nil {
		j.ns.countLost(rs, old.Pod, o, c)
	}
	if c.Gone {
		delete(j.ns.pods, o.UID)
		return
	}
	j.ns.pods[o.UID] = &pod{o, owner.UID}
}

// Broken returns the invariants that were broken, in their order.
func (j *Judge) Broken() []Breach { return j.broken }

// Fights returns how often the native controller has resized a ReplicaSet of a held
// Deployment (I10).
func (j *Judge) Fights() int { return j.fights }

// Judged returns how often an invariant was put to the test, by its name.
func (j *Judge) Judged(invariant string) int { return j.judged[invariant] }

func (j *Judge) fail(d *deployment, format string, args ...any) {
	j.broken = append(j.broken, Breach{d.Name, d.Name + ": " + fmt.Sprintf(format, args...)})
}
