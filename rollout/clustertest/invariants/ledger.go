package invariants

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
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
	// stable ran on all pods of the native Deployment; last did so before. Both may
	// grow with no gate. They are nil where that was never seen.
	stable, last *revision
	former       []was[*revision] // what stable and last were before
	// doubtful: whether the last way to stable was a rollback, which leaves no last, is
	// not known. A plan that was deleted and created again may have forgotten last, or not.
	doubtful bool
	// finished ran on all pods under the hold, past all its gates, and the controller has
	// seen that. It is stable from then on, but no hand-back says so if another release comes
	// before it. It is perhaps stable then, since the controller may not have come to it,
	// and perhapsLast once another one is stable.
	finished, perhaps, perhapsLast *revision
	// adopted are the templates that had pods when the plan was created.
	adopted []*corev1.PodTemplateSpec
	// adopting is true from the creation of the plan until the controller says that it
	// has observed the Deployment. The template that runs natively is then stable, with
	// or without a hand-back.
	adopting bool
	// delivered is the template of the last hand-back.
	delivered *corev1.PodTemplateSpec
	plan      types.UID
	releases  []*release // in the order of their last appearance in spec
	steps     []intstr.IntOrString
}

// revision is a template as the API server keeps it, and as spec brought it; the
// latter is nil where no plan did.
type revision struct{ template, brought *corev1.PodTemplateSpec }

func (l *ledger) current() *release {
	if n := len(l.releases); n > 0 && l.releases[n-1].until.IsZero() {
		return l.releases[n-1]
	}
	return nil
}

// lately returns the releases that spec has brought within lag, the newest first.
func (l *ledger) lately(now time.Time) []*release {
	var found []*release
	for _, r := range slices.Backward(l.releases) {
		if r.until.IsZero() || now.Sub(r.until) <= lag {
			found = append(found, r)
		}
	}
	return found
}

// is reports whether the template is this revision.
func (s *revision) is(t *corev1.PodTemplateSpec) bool {
	return s != nil && plan.EqualTemplate(s.template, t)
}

func (s *revision) broughtBy(r *release) bool {
	return s != nil && r != nil && s.brought != nil && equality.Semantic.DeepEqual(s.brought, r.template)
}

// free reports whether a template may grow with no gate: it is stable, or what was
// stable before and is brought back as a rollback.
func (l *ledger) free(t *corev1.PodTemplateSpec, now time.Time) bool {
	for _, a := range l.adopted {
		if plan.EqualTemplate(a, t) {
			return true
		}
	}
	for _, f := range l.former {
		if now.Sub(f.until) <= lag && f.value.is(t) {
			return true
		}
	}
	r := l.current()
	gated := r != nil && r.midway && r.matches(t)
	for _, s := range []*revision{l.stable, l.perhaps} {
		if s.is(t) || l.admits(s, t, now) {
			return true
		}
	}
	return !gated && slices.ContainsFunc([]*revision{l.last, l.perhapsLast}, func(s *revision) bool { return s.is(t) || l.admits(s, t, now) })
}

// admits reports whether a template is what admission makes of a revision today: it
// has all that spec brought, and is of no other release.
func (l *ledger) admits(s *revision, t *corev1.PodTemplateSpec, now time.Time) bool {
	if s == nil || s.brought == nil {
		return false
	}
	of := covers(t, s.brought)
	for _, r := range l.lately(now) {
		if r.matches(t) && !s.broughtBy(r) {
			return false
		}
		of = of || r.matches(t)
	}
	return of
}

// ledgerOf returns the ledger of a Deployment of this name.
func (v *Judge) ledgerOf(name string) *ledger {
	l := v.ledgers[name]
	if l == nil {
		l = &ledger{name: name}
		v.ledgers[name] = l
	}
	return l
}

// record writes an event of a BatchRelease into the ledger, if it is of the plan
// that counts.
func (v *Judge) record(o, before *v1alpha1.BatchRelease, c Change) {
	l := v.ledgerOf(o.Spec.WorkloadRef.Name)
	p := v.planNamed(o.Namespace, l.name, false)
	if p == nil {
		if r := l.current(); r != nil {
			r.until = v.now
		}
		for _, r := range l.releases {
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
	if l.plan != o.UID {
		if l.plan == "" {
			v.adopt(l)
			l.doubtful = l.doubtful || l.last != nil
		}
		l.plan, before = o.UID, nil
	}
	if o.Spec.Template == nil {
		if r := l.current(); r != nil {
			r.until = v.now
		}
		return
	}
	now := l.current()
	r := v.bring(l, o)
	if steps := plan.StepReplicas(o.Spec.Strategy.Steps); r != now || !slices.Equal(steps, l.steps) {
		v.replan(l, r, steps)
	}
	v.recordApproval(l, r, o)
	v.recordCompleted(r, o, before)
	if o.Annotations[v1alpha1.AnnotationRollback] == "true" {
		r.rollback = true
	}
	if s := &o.Status; r.commit != "" && s.UpdateCommit == r.commit && s.ObservedGeneration >= r.generation && underWay(s.Phase) {
		v.act(l, r) // the controller says itself that it is about this release
	}
	if o.Status.Phase != "" {
		l.adopting = false
	}
	if c.Found { // what was given meanwhile is not known
		index := min(int(o.Status.CurrentStepIndex), len(o.Spec.Strategy.Steps)-1)
		if index > 0 {
			r.open(plan.StepReplicas(o.Spec.Strategy.Steps)[:index+1]...)
			r.position = max(r.position, index)
		}
		l.adopting = true
	}
}

// adopt notes what has pods when a plan is created.
func (v *Judge) adopt(l *ledger) {
	l.adopting, l.adopted = true, nil
	d := v.deploymentNamed(l.name)
	for _, rs := range v.active(d) {
		if t := &rs.Spec.Template; !Held(d.Deployment) || !plan.EqualTemplate(t, &d.Spec.Template) {
			l.adopted = append(l.adopted, t)
		}
	}
}

// bring returns the release that spec brings. One that comes again while the
// controller may never have seen another goes on.
func (v *Judge) bring(l *ledger, o *v1alpha1.BatchRelease) *release {
	same := func(r *release) bool {
		return r.commit == o.Spec.Commit && equality.Semantic.DeepEqual(r.template, o.Spec.Template)
	}
	before := l.current()
	if before != nil && same(before) {
		return before
	}
	if before != nil {
		before.until = v.now
	}
	r := &release{commit: o.Spec.Commit, template: o.Spec.Template, completed: -1, entered: v.now, waits: map[int]*wait{}, covered: map[*corev1.PodTemplateSpec]bool{}, names: map[string]bool{}}
	if i := slices.IndexFunc(l.releases, func(r *release) bool { return same(r) && !r.closed }); i >= 0 {
		old := l.releases[i]
		l.releases = slices.Delete(l.releases, i, i+1)
		if old.ended {
			r.spent = true
		} else {
			r = old
			r.until = time.Time{}
		}
	}
	r.generation = o.Generation
	if l.last != nil && (l.last.broughtBy(r) || covers(l.last.template, r.template)) {
		r.midway, r.unsure = v.midway(l, before)
	}
	l.releases = append(l.releases, r)
	return r
}

// midway reports whether the release before this one is under way for certain, and
// whether it perhaps is.
func (v *Judge) midway(l *ledger, before *release) (certain, perhaps bool) {
	d := v.deploymentNamed(l.name)
	if before == nil || d == nil || l.stable == nil {
		return false, true
	}
	settled := !Held(d.Deployment) && v.now.Sub(d.heldUntil) > lag
	for _, r := range l.lately(v.now) {
		settled = settled && (l.stable.broughtBy(r) || l.stable.template != nil && covers(l.stable.template, r.template))
	}
	if settled {
		return false, false
	}
	p := v.planOf(d, false)
	if !Held(d.Deployment) || v.now.Sub(d.heldSince) <= lag || before.rollback || p == nil || p.Spec.Strategy.OnFailure == v1alpha1.FailureRollback || p.Spec.Paused {
		return false, true
	}
	for _, rs := range v.active(d) {
		t := &rs.Spec.Template
		known := l.stable.is(t) || l.last.is(t) || l.admits(l.stable, t, v.now)
		if before.matches(t) && !known && v.now.Sub(v.activeSince[rs.UID]) > lag {
			return true, true
		}
	}
	return false, true
}

// replan finds the place of a release in an edited plan: the last step whose target
// is not above what is opened. The controller may be at an earlier one, whose gates
// can then open again. A step that stays keeps its time.
func (v *Judge) replan(l *ledger, r *release, steps []intstr.IntOrString) {
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
		r.entered = v.now
	}
	r.position = 0
	if len(r.opened) == 0 {
		return
	}
	var replicas []int32
	if d := v.deploymentNamed(l.name); d != nil {
		replicas = d.replicas.within(v.now)
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
func (v *Judge) recordApproval(l *ledger, r *release, o *v1alpha1.BatchRelease) {
	given := o.Spec.Approval
	for _, a := range r.approvals {
		if a.until.IsZero() && (given == nil || !equality.Semantic.DeepEqual(*given, a.Approval)) {
			a.until = v.now
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
	for _, steps := range v.releasePlans(o) {
		plans = append(plans, plan.StepReplicas(steps))
	}
	for _, old := range l.releases { // it may have stood there already, for another release
		for _, a := range old.approvals {
			if equality.Semantic.DeepEqual(*given, a.Approval) {
				plans = append(plans, a.plans...)
			}
		}
	}
	r.approvals = append(r.approvals, &approval{Approval: *given.DeepCopy(), generation: o.Generation, plans: plans})
}

// releasePlans are the steps of a plan within lag.
func (v *Judge) releasePlans(o *v1alpha1.BatchRelease) [][]v1alpha1.Step {
	if p := v.plans[o.UID]; p != nil {
		return p.steps.within(v.now)
	}
	return [][]v1alpha1.Step{o.Spec.Strategy.Steps}
}

// act notes that the controller has begun a release, and so ended all others.
func (v *Judge) act(l *ledger, r *release) {
	r.acted = true
	if r != l.current() {
		return
	}
	for _, other := range l.releases {
		if other != r && other.acted {
			other.ended = true
		}
	}
}

// recordHold notes which release the controller holds a Deployment for.
func (v *Judge) recordHold(d *deployment, before *appsv1.Deployment) {
	l, t := v.ledgerOf(d.Name), &d.Spec.Template
	l.adopting = false
	if Writer(d.Deployment, before.ManagedFields) != v1alpha1.ManagerRollout {
		return
	}
	lately := l.lately(v.now)
	found := false
	for _, r := range lately {
		if r.matches(t) {
			v.act(l, r)
			found = true
		}
	}
	if f := l.finished; f != nil && !f.is(t) {
		l.finished, l.perhaps = nil, f
	}
	if r := l.current(); !found && r != nil && !l.free(t, v.now) && !plan.EqualTemplate(t, &before.Spec.Template) {
		r.admitted = append(r.admitted, t) // admission made it of what was sent
		v.act(l, r)
	}
}
