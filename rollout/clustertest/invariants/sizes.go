package invariants

import (
	"math"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// judgeFight checks I10.
func (j *Judge) judgeFight(d *deployment, rs *appsv1.ReplicaSet, from int32, by string, active []*appsv1.ReplicaSet) {
	j.judged["I10"]++
	if by != NativeManager || d.Status.ObservedGeneration < d.heldOver {
		return
	}
	to := *rs.Spec.Replicas
	alone := !slices.ContainsFunc(active, func(other *appsv1.ReplicaSet) bool {
		return other.UID != rs.UID && j.ns.now.Sub(j.ns.activeSince[other.UID]) > nativeLag
	})
	wanted := d.replicas.within(j.ns.now)
	follows := slices.Contains(wanted, to) && (to != j.ns.sizedAt[rs.UID] || len(wanted) > 1)
	if alone && follows && (to < from || !j.ledgerOf(d.Name).gated(d, rs)) {
		return
	}
	j.fights++
	j.fail(d, "I10: the native controller resized ReplicaSet %s of a held Deployment from %d to %d", rs.Name, from, to)
}

// gates reports whether the ledger has a limit for a template. It knows then what is
// stable and what spec brings, and the template may not grow with no gate.
func (l *ledger) gates(d *deployment, p *plannedRelease, t *corev1.PodTemplateSpec) bool {
	return p != nil && p.UID == l.plan && l.current() != nil && l.stable != nil && !l.free(t) && !leftAlone(d)
}

// gated reports whether a ReplicaSet has a closed gate before it.
func (l *ledger) gated(d *deployment, rs *appsv1.ReplicaSet) bool {
	p, r, t := l.ns.planOf(d, false), l.current(), &rs.Spec.Template
	return p != nil && r != nil && l.stable != nil && r.matches(t) && !l.free(t) && !r.whole(p.Spec.Strategy.Steps)
}

// judgeTotal checks I2.
func (j *Judge) judgeTotal(d *deployment, rs *appsv1.ReplicaSet, from int32) {
	if !Held(d.Deployment) || j.ns.now.Sub(d.tookOver) <= lag || j.ns.now.Sub(d.enlarged) <= lag {
		return // the native controller, or another user, filled another one meanwhile
	}
	j.judged["I2"]++
	var total int32
	for _, rs := range j.ns.setsOf(d) {
		total += *rs.Spec.Replicas
	}
	if most, _ := j.ns.bounds(d); total > most {
		j.fail(d, "I2: ReplicaSet %s from %d to %d makes %d pods, more than %d", rs.Name, from, *rs.Spec.Replicas, total, most)
	}
}

// judgeTarget checks I3 and I5, by the ledger. Native growth of a Deployment that is
// not held follows what others wrote to it; a hand-back is judged by itself.
func (j *Judge) judgeTarget(d *deployment, rs *appsv1.ReplicaSet, from int32, by string) {
	l, p := j.ledgerOf(d.Name), j.ns.planOf(d, false)
	t := &rs.Spec.Template
	if !Held(d.Deployment) && by != v1alpha1.ManagerRollout || !l.gates(d, p, t) {
		return
	}
	limit, first, of := l.limitOf(d, p, t)
	if by == NativeManager && !l.current().matches(t) {
		return // it follows N, or I10 is broken
	}
	if of == nil {
		if by == v1alpha1.ManagerRollout {
			j.fail(d, "I3: ReplicaSet %s from %d to %d is neither stable nor what spec brings", rs.Name, from, *rs.Spec.Replicas)
		}
		return
	}
	j.judged["I3"]++
	if *rs.Spec.Replicas > first {
		j.judged["I5"]++
	}
	if *rs.Spec.Replicas <= limit {
		return
	}
	j.fail(d, "I3: ReplicaSet %s from %d to %d by %s, and the limit is %d: %s", rs.Name, from, *rs.Spec.Replicas, by, limit, of)
	if a := p.Spec.Approval; a != nil && !of.approved(d, l.steps, of.position, j.ns.now) {
		j.fail(d, "I5: the approval of step %d of %s, commit %.12q, is not for step %d of this release",
			a.Step, a.Revision, a.Commit, of.position)
	}
}

// judgeTaken checks I1.
func (j *Judge) judgeTaken(d *deployment, rs *appsv1.ReplicaSet, from int32) {
	j.judged["I1"]++
	var before, after, lost int32
	for _, other := range j.ns.setsOf(d) {
		size, ready := *other.Spec.Replicas, int32(math.MaxInt32)
		if other.UID == rs.UID && rs.Status.ObservedGeneration > 0 {
			ready = rs.Status.ReadyReplicas
		}
		after += j.ns.left(other, size, ready)
		if other.UID == rs.UID {
			size = from
		}
		before += j.ns.left(other, size, ready)
	}
	for _, at := range d.lost {
		if j.ns.now.Sub(at) <= lag {
			lost++
		}
	}
	if _, least := j.ns.bounds(d); after < before && after+lost < least {
		j.fail(d, "I1: ReplicaSet %s from %d to %d lets %d of %d available pods be left, fewer than %d (%d were lately lost otherwise)",
			rs.Name, from, *rs.Spec.Replicas, after, before, least, lost)
	}
}
