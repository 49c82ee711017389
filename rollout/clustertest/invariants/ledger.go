package invariants

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// ledger holds what users gave to the releases of one Deployment. That is templates,
// commits, steps, approvals and pauses as they stood in spec, and approvals that users
// wrote to the status. I3 and I5 are judged by it. It never takes the word of the
// controller's status for a gate that is open. It reads three claims of status, and only
// if they make the judgement stricter or if a watch was down.
//
// The watcher cannot know when a gate opened, only when it could open. So the ledger
// opens every gate as soon as the conditions hold, and errs on the controller's side.
type ledger struct {
	name string
	stability
	plan  types.UID
	steps []intstr.IntOrString
}

func newLedger(ns *namespace, name string) *ledger {
	return &ledger{name: name, stability: stability{releases: releases{ns: ns}}}
}

// record writes an event of a BatchRelease into the ledger, if it is of the plan
// that counts.
func (l *ledger) record(o, before *v1alpha1.BatchRelease, found bool) {
	p := l.ns.planNamed(o.Namespace, l.name, false)
	if p == nil {
		l.stop()
		for _, r := range l.all {
			r.closed = true
		}
		l.plan = ""
		return
	}
	if p.UID != o.UID {
		if l.plan == p.UID {
			return // a plan that does not count
		}
		o, before = p.BatchRelease, nil // the next plan counts from now on
	}
	first := l.plan == ""
	if first {
		l.adopt(l.ns.deploymentNamed(l.name))
		l.doubtful = l.doubtful || l.last != nil
	}
	if l.plan != o.UID {
		l.plan, before = o.UID, nil
	}
	if o.Spec.Template == nil {
		l.stop()
		return
	}
	l.recordRelease(o, before, found)
	if d := l.ns.deploymentNamed(l.name); first && d != nil {
		l.settle(d, found) // the hold may be the next that is seen of it
	}
}

// recordRelease notes what spec brings and what users gave to it.
func (l *ledger) recordRelease(o, before *v1alpha1.BatchRelease, found bool) {
	now := l.current()
	r := l.bring(o)
	if steps := plan.StepReplicas(o.Spec.Strategy.Steps); r != now || !slices.Equal(steps, l.steps) {
		l.replan(r, steps)
	}
	l.recordApproval(r, o)
	r.recordCompleted(o, before)
	if o.Annotations[v1alpha1.AnnotationRollback] == "true" {
		r.rollback = true
	}
	if s := &o.Status; r.commit != "" && s.UpdateCommit == r.commit && s.ObservedGeneration >= r.generation && underWay(s.Phase) {
		l.act(r) // the controller says itself that it is about this release
	}
	if o.Status.Phase != "" {
		l.adopting = false
	}
	if found { // what was given meanwhile is not known
		index := min(int(o.Status.CurrentStepIndex), len(o.Spec.Strategy.Steps)-1)
		if index > 0 {
			r.open(plan.StepReplicas(o.Spec.Strategy.Steps)[:index+1]...)
			r.position = max(r.position, index)
		}
		l.adopting = true
	}
}

// bring returns the release that spec brings. One that comes again while the
// controller may never have seen another goes on.
func (l *ledger) bring(o *v1alpha1.BatchRelease) *release {
	before := l.current()
	if before != nil && before.broughtBy(o) {
		return before
	}
	l.stop()
	r := newRelease(o, l.ns.now)
	if i := slices.IndexFunc(l.all, func(r *release) bool { return r.broughtBy(o) && !r.closed }); i >= 0 {
		old := l.all[i]
		l.all = slices.Delete(l.all, i, i+1)
		if old.ended {
			r.spent = true
		} else {
			r = old
			r.until = time.Time{}
		}
	}
	r.generation = o.Generation
	if l.last != nil && (l.last.broughtBy(r) || covers(l.last.template, r.template)) {
		r.midway, r.unsure = l.midway(l.ns.deploymentNamed(l.name), before)
	}
	l.all = append(l.all, r)
	return r
}

// replan finds the place of a release in an edited plan: the last step whose target
// is not above what is opened. The controller may be at an earlier one, whose gates
// can then open again. A step that stays keeps its time.
func (l *ledger) replan(r *release, steps []intstr.IntOrString) {
	before := l.steps
	l.steps = steps
	for _, a := range r.approvals {
		if !a.seen {
			a.plans = append(a.plans, steps)
		}
	}
	for i := range r.waits {
		if i >= len(steps) || i >= len(before) || !slices.Equal(steps[:i+1], before[:i+1]) {
			delete(r.waits, i)
		}
	}
	if !sameSteps(before, steps, r.position) {
		r.entered = l.ns.now
	}
	r.position = 0
	if len(r.opened) == 0 {
		return
	}
	var replicas []int32
	if d := l.ns.deploymentNamed(l.name); d != nil {
		replicas = d.replicas.within(l.ns.now)
	}
	for i := range steps {
		for _, n := range replicas {
			if n > 0 && most(steps[:i+1], n) <= most(r.opened, n) {
				r.position = max(r.position, min(i, max(0, len(steps)-2)))
			}
		}
	}
}

// recordApproval notes spec.approval, and with which steps it was given.
func (l *ledger) recordApproval(r *release, o *v1alpha1.BatchRelease) {
	given := o.Spec.Approval
	for _, a := range r.approvals {
		if a.until.IsZero() && (given == nil || !equality.Semantic.DeepEqual(*given, a.Approval)) {
			a.until = l.ns.now
		}
		a.seen = a.seen || o.Status.ObservedGeneration >= a.generation
	}
	if given == nil {
		return
	}
	standing := func(a *approval) bool { return a.until.IsZero() }
	if slices.ContainsFunc(r.approvals, standing) {
		return
	}
	if r.spent && r.commit != "" {
		return
	}
	plans := [][]intstr.IntOrString{l.steps}
	for _, steps := range l.ns.plans[o.UID].steps.within(l.ns.now) {
		plans = append(plans, plan.StepReplicas(steps))
	}
	for _, old := range l.all { // it may have stood there already, for another release
		for _, a := range old.approvals {
			if equality.Semantic.DeepEqual(*given, a.Approval) {
				plans = append(plans, a.plans...)
			}
		}
	}
	r.approvals = append(r.approvals, &approval{Approval: *given.DeepCopy(), generation: o.Generation, plans: plans})
}

// recordHold notes which release the controller holds a Deployment for.
func (l *ledger) recordHold(d *deployment, before *appsv1.Deployment) {
	t := &d.Spec.Template
	l.adopting = false
	if Writer(d.Deployment, before.ManagedFields) != v1alpha1.ManagerRollout {
		return
	}
	lately := l.lately()
	found := false
	for _, r := range lately {
		if r.matches(t) {
			l.act(r)
			found = true
		}
	}
	if f := l.finished; f != nil && !f.is(t) {
		l.finished, l.perhaps = nil, f
	}
	if r := l.current(); !found && r != nil && !l.free(t) && !plan.EqualTemplate(t, &before.Spec.Template) {
		r.admitted = append(r.admitted, t) // admission made it of what was sent
		l.act(r)
	}
}
