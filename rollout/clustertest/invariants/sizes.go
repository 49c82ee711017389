package invariants

import (
	"math"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

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
