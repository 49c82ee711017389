package invariants

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

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

// release is one template by one commit.
type release struct {
	commit     string
	template   *corev1.PodTemplateSpec          // as in spec
	generation int64                            // of the spec that brought it
	until      time.Time                        // when spec stopped to say so; zero while it does
	covered    map[*corev1.PodTemplateSpec]bool // what covers said
	// admitted are templates that admission made of it.
	admitted []*corev1.PodTemplateSpec
	// names are those of its ReplicaSets, of deleted ones too.
	names map[string]bool
	// acted: the controller held the Deployment at this release's template.
	acted bool
	// ended: the controller went on to another release. Once spec brings this one
	// again, no approval counts for it.
	ended, spent bool
	// closed: the plan was deleted, and its memory with it.
	closed bool
	// midway: it brings back the last stable template in the middle of another
	// release, so it is gated. unsure: perhaps it does.
	midway, unsure bool
	// rollback: a user asked for a rollback.
	rollback bool

	opened    []intstr.IntOrString // the steps that gates have opened; none before the first
	position  int                  // the step whose gate is next
	entered   time.Time            // when the gate before it opened
	waits     map[int]*wait
	approvals []*approval
	completed int // the step that a user completed in status; -1 for none
	completes []intstr.IntOrString
}

// wait is a step at its gate: since when its pods are available.
type wait struct {
	since  time.Time
	target int32
	full   time.Time // when all of them were last available
	low    time.Time // since when too few are
}

// approval is spec.approval as it was given.
type approval struct {
	v1alpha1.Approval
	generation int64
	seen       bool // the controller says so
	until      time.Time
	plans      [][]intstr.IntOrString // that it may be for, where it names no steps
}

// pauseSlack is how much shorter than its duration a pause may look: times in status
// and in pods are in whole seconds.
const pauseSlack = 2 * time.Second

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

// matches reports whether a template of the API server is that of the release. It has all
// that spec says, or admission made it of that.
func (r *release) matches(t *corev1.PodTemplateSpec) bool {
	has, known := r.covered[t]
	if !known {
		has = covers(t, r.template)
		r.covered[t] = has
	}
	return has || slices.ContainsFunc(r.admitted, func(a *corev1.PodTemplateSpec) bool { return plan.EqualTemplate(a, t) })
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

// allowed returns how many pods the gates of a release let run, at the largest of
// these replicas. Before the first gate it is the first step of one of these plans.
func (r *release) allowed(plans [][]v1alpha1.Step, replicas []int32) int32 {
	values := r.opened
	if len(values) == 0 {
		for _, steps := range plans {
			values = append(slices.Clone(values), steps[0].Replicas)
		}
	}
	var limit int32
	for _, n := range replicas {
		limit = max(limit, most(values, n))
	}
	return limit
}

// whole reports whether the gates let all pods run the release, at any N.
func (r *release) whole(steps []v1alpha1.Step) bool {
	return slices.Contains(r.opened, plan.Full) || len(r.opened) == 0 && len(steps) > 0 && steps[0].Replicas == plan.Full
}

func most(values []intstr.IntOrString, n int32) int32 {
	var limit int32
	for _, v := range values {
		limit = max(limit, plan.Limit(v, n))
	}
	return limit
}

func (r *release) open(values ...intstr.IntOrString) {
	for _, v := range values {
		if !slices.Contains(r.opened, v) {
			r.opened = append(r.opened, v)
		}
	}
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

// recordCompleted notes an approval that a user wrote to the status. It is for the
// step that the status showed, and for no step beyond the next gate.
func (v *Judge) recordCompleted(r *release, o, before *v1alpha1.BatchRelease) {
	s := &o.Status
	if before == nil || before.Status.CurrentStepState == v1alpha1.StepCompleted || s.CurrentStepState != v1alpha1.StepCompleted ||
		s.ObservedGeneration < r.generation {
		return
	}
	for _, e := range o.ManagedFields {
		if e.Manager != v1alpha1.ManagerRollout && e.Manager != v1alpha1.ManagerGitSync && owns(e, "f:status", "f:currentStepState") {
			r.completed, r.completes = min(int(s.CurrentStepIndex), r.position), plan.StepReplicas(o.Spec.Strategy.Steps)
		}
	}
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

// settle notes what has become stable. It is what the native Deployment runs on all pods,
// once Tranche has handed it back or before a plan has done anything.
func (v *Judge) settle(d *deployment, found bool) {
	if Held(d.Deployment) || d.Spec.Paused {
		return
	}
	t, active := &d.Spec.Template, v.active(d)
	if len(active) > 1 || len(active) == 0 && *d.Spec.Replicas > 0 || len(active) == 1 && !plan.EqualTemplate(&active[0].Spec.Template, t) {
		return
	}
	l, p := v.ledgerOf(d.Name), v.planOf(d, false)
	r := l.current()
	l.finished = nil
	if l.stable.is(t) {
		l.perhaps = nil
		if l.stable.brought == nil && r != nil && covers(t, r.template) {
			l.stable.brought = r.template
		}
		return
	}
	if l.admits(l.stable, t, v.now) {
		l.former = append(l.former, was[*revision]{l.stable, v.now})
		l.stable = &revision{t, l.stable.brought}
		return
	}
	next := &revision{template: t}
	back := l.last.is(t) || l.admits(l.last, t, v.now)
	l.doubtful = l.doubtful || l.perhaps != nil || l.perhapsLast != nil
	switch {
	case r != nil && r.matches(t):
		next.brought = r.template
	case back: // a user asked for a rollback, and spec brings what was rolled back
		next.brought = l.last.brought
	}
	switch {
	case l.stable == nil || p == nil || p.Spec.Template == nil || l.adopting || found:
		l.stabilise(next, l.stable, v.now)
	case l.delivered == nil || !plan.EqualTemplate(l.delivered, t):
		// Another field manager changed the native Deployment: that is drift.
	case back && !l.doubtful && (r == nil || !r.matches(t) || !r.midway && !r.unsure):
		l.stabilise(next, nil, v.now) // what a rollback leaves behind is nothing to go back to
	default:
		l.doubtful = back
		l.stabilise(next, l.stable, v.now)
		if r != nil {
			r.ended = r.acted
		}
	}
}

func (l *ledger) stabilise(stable, last *revision, now time.Time) {
	for _, r := range []*revision{l.stable, l.last} {
		if r != nil {
			l.former = append(l.former, was[*revision]{r, now})
		}
	}
	l.stable, l.last, l.perhaps, l.perhapsLast = stable, last, nil, l.perhaps
	if !l.adopting {
		l.adopted = nil
	}
}

// openGates opens every gate of the release under way that could be open by now.
func (v *Judge) openGates(name string) {
	l, d := v.ledgers[name], v.deploymentNamed(name)
	if l == nil || d == nil {
		return
	}
	r, p := l.current(), v.planOf(d, false)
	if r == nil || p == nil || p.UID != l.plan {
		return
	}
	for _, rs := range v.setsOf(d) {
		if r.matches(&rs.Spec.Template) {
			r.names[hashOf(rs)] = true
		}
	}
	steps := p.Spec.Strategy.Steps
	last := len(steps) - 1
	for _, n := range d.replicas.within(v.now) {
		if len(r.opened) > 0 && most(l.steps[:1], n) > most(r.opened, n) && v.approved(d, r, l.steps, 0) {
			r.open(l.steps[0]) // an edit raised the first step, and it was approved
		}
	}
	if r.position >= max(0, last-1) && last > 0 && v.approved(d, r, l.steps, last-1) && v.approved(d, r, l.steps, last) {
		r.open(plan.Full) // an edit has left no gate to ask
	}
	for again := true; again; {
		again = false
		for i := 0; i <= r.position && i < last; i++ {
			if !v.opens(d, p, l, r, i) {
				continue
			}
			r.open(l.steps[:i+2]...)
			if i == r.position {
				r.position, r.entered, r.completed = i+1, v.now, -1
				r.waits[i+1] = &wait{}
				again = true
			}
		}
	}
	v.finish(d, p, l)
}

// finish notes a release that all pods run under the hold, and all gates of which are open.
// The controller must say that it hands back. Others may have taken the other pods away,
// or have set N to what runs, and it need not have seen that.
func (v *Judge) finish(d *deployment, p *plannedRelease, l *ledger) {
	t, active := &d.Spec.Template, v.active(d)
	if p.Status.Phase != v1alpha1.PhaseFinalizing || !Held(d.Deployment) || l.stable.is(t) || l.finished.is(t) ||
		len(active) != 1 || *active[0].Spec.Replicas < *d.Spec.Replicas || !plan.EqualTemplate(&active[0].Spec.Template, t) {
		return
	}
	for _, r := range l.lately(v.now) {
		seen := p.Status.UpdateCommit == r.commit && r.matches(t)
		if seen && r.whole(p.Spec.Strategy.Steps) && len(v.availableSince(d, r)) >= int(*d.Spec.Replicas) {
			l.finished = &revision{t, r.template}
		}
	}
}

// opens reports whether the gate of step i could open now.
func (v *Judge) opens(d *deployment, p *plannedRelease, l *ledger, r *release, i int) bool {
	target := v.targetOf(d, l, r, i)
	if target < 0 {
		return false // to zero and back opens no gate
	}
	times := v.availableSince(d, r)
	w := r.waits[i]
	if w == nil {
		w = &wait{}
		r.waits[i] = w
	}
	low := min(target, w.target)
	low -= v.tolerated(d, low)
	switch available := int32(len(times)); {
	case available >= target:
		if w.since.IsZero() {
			w.since = r.entered
			if target > 0 && times[target-1].After(w.since) {
				w.since = times[target-1]
			}
		}
		w.target, w.full, w.low = target, v.now, time.Time{}
	case w.since.IsZero():
		return false
	case available >= low:
		w.low = time.Time{}
	case w.low.IsZero():
		w.low = v.now
	case v.now.Sub(w.low) > lag:
		*w = wait{}
		return false
	}
	if v.now.Sub(w.full) > lag || !slices.Contains(p.paused.within(v.now), false) {
		return false
	}
	for _, steps := range p.steps.within(v.now) {
		if i < len(steps)-1 && steps[i].Pause != nil && v.now.Sub(w.since) >= steps[i].Pause.Duration.Duration-pauseSlack {
			return true
		}
	}
	completed := r.completed == i && sameSteps(r.completes, l.steps, i+1) &&
		slices.Contains(p.signed.within(v.now), false) && slices.Contains(p.review.within(v.now), false)
	return completed || v.approved(d, r, l.steps, i)
}

// targetOf is the fewest pods that step i may want; negative at 0 replicas.
func (v *Judge) targetOf(d *deployment, l *ledger, r *release, i int) int32 {
	target := int32(-1)
	for _, n := range d.replicas.within(v.now) {
		if n == 0 {
			continue
		}
		wants := most(l.steps[:i+1], n)
		if len(r.opened) > 0 {
			wants = min(wants, most(r.opened, n))
		}
		for _, s := range append(v.strategies(d), nil) {
			if surge, _, err := plan.Bounds(s, n); err == nil && surge == 0 {
				wants = min(wants, n-1) // one other stays before the last step
			}
		}
		if target < 0 || wants < target {
			target = wants
		}
	}
	return target
}

// tolerated is how many pods of a target a step may lack at its gate.
func (v *Judge) tolerated(d *deployment, target int32) int32 {
	var lacking int32
	for _, s := range v.strategies(d) {
		if _, unavailable, err := plan.Bounds(s, target); err == nil {
			lacking = max(lacking, unavailable)
		}
	}
	return max(0, min(lacking, target-1))
}

// availableSince returns since when each available pod of a release is available, the
// first one first.
func (v *Judge) availableSince(d *deployment, r *release) []time.Time {
	var all []time.Time
	for _, rs := range v.active(d) {
		if !r.matches(&rs.Spec.Template) {
			continue
		}
		var times []time.Time
		for _, p := range v.pods {
			if p.set != rs.UID || !lives(p.Pod) {
				continue
			}
			if since := readySince(p.Pod); since != nil {
				if at := since.Add(time.Duration(rs.Spec.MinReadySeconds) * time.Second); !at.After(v.now) {
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

// approved reports whether spec.approval opens the gate of step i (I5).
func (v *Judge) approved(d *deployment, r *release, steps []intstr.IntOrString, i int) bool {
	return slices.ContainsFunc(r.approvals, func(a *approval) bool {
		return (a.until.IsZero() || v.now.Sub(a.until) <= lag) && v.isFor(d, r, &a.Approval) && int(a.Step) >= i &&
			slices.ContainsFunc(a.of(), func(approved []intstr.IntOrString) bool { return sameSteps(approved, steps, i+1) })
	})
}

// of are the plans that an approval may be for.
func (a *approval) of() [][]intstr.IntOrString {
	if len(a.Steps) > 0 {
		return [][]intstr.IntOrString{a.Steps}
	}
	return a.plans
}

// isFor reports whether an approval names a release, by revision and commit.
func (v *Judge) isFor(d *deployment, r *release, a *v1alpha1.Approval) bool {
	if a.Commit != r.commit && (len(a.Commit) < shortestCommit || !strings.HasPrefix(r.commit, a.Commit)) {
		return false
	}
	if ptr.Deref(d.Status.CollisionCount, 0) > 0 {
		return true // after a collision the ReplicaSet has another name than the one that was shown
	}
	return r.names[a.Revision] || len(r.names) == 0 // before its ReplicaSet is there, the name is not known
}

// shortestCommit is how many characters of a commit name it.
const shortestCommit = 7

// sameSteps reports whether two plans are equal up to a step, or to their end.
func sameSteps(a, b []intstr.IntOrString, upTo int) bool {
	upTo = min(upTo, len(b)-1)
	return len(a) > upTo && slices.Equal(a[:upTo+1], b[:upTo+1])
}

// String is what a breach says of a release.
func (r *release) String() string {
	opened := "no gate has opened"
	if len(r.opened) > 0 {
		var values []string
		for _, v := range r.opened {
			values = append(values, v.String())
		}
		opened = "gates opened the steps " + strings.Join(values, ", ")
	}
	return fmt.Sprintf("release %.12q: %s", r.commit, opened)
}

// covers reports whether a template has every field of another one, with an equal
// value. The API server adds defaults, and admission may add more.
func covers(live, spec *corev1.PodTemplateSpec) bool {
	var a, b map[string]any
	if live == nil || spec == nil || json.Unmarshal([]byte(encode(live)), &a) != nil || json.Unmarshal([]byte(encode(spec)), &b) != nil {
		return false
	}
	return includes(a, b)
}

func includes(live, spec any) bool {
	switch spec := spec.(type) {
	case nil:
		return true
	case map[string]any:
		live, _ := live.(map[string]any)
		for k, value := range spec {
			if !includes(live[k], value) {
				return false
			}
		}
		return true
	case []any:
		live, _ := live.([]any)
		if len(live) < len(spec) {
			return false
		}
		for i, value := range spec {
			if !includes(live[i], value) {
				return false
			}
		}
		return true
	default:
		return equality.Semantic.DeepEqual(live, spec)
	}
}
