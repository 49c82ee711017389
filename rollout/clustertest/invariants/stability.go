package invariants

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// stability is what has run on all pods of a Deployment.
type stability struct {
	releases
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
}

// revision is a template as the API server keeps it, and as spec brought it; the
// latter is nil where no plan did.
type revision struct{ template, brought *corev1.PodTemplateSpec }

// is reports whether the template is this revision.
func (s *revision) is(t *corev1.PodTemplateSpec) bool {
	return s != nil && plan.EqualTemplate(s.template, t)
}

func (s *revision) broughtBy(r *release) bool {
	return s != nil && r != nil && s.brought != nil && equality.Semantic.DeepEqual(s.brought, r.template)
}

// free reports whether a template may grow with no gate: it is stable, or what was
// stable before and is brought back as a rollback.
func (s *stability) free(t *corev1.PodTemplateSpec) bool {
	for _, a := range s.adopted {
		if plan.EqualTemplate(a, t) {
			return true
		}
	}
	for _, f := range s.former {
		if s.ns.now.Sub(f.until) <= lag && f.value.is(t) {
			return true
		}
	}
	r := s.current()
	gated := r != nil && r.midway && r.matches(t)
	for _, x := range []*revision{s.stable, s.perhaps} {
		if x.is(t) || s.admits(x, t) {
			return true
		}
	}
	return !gated && slices.ContainsFunc([]*revision{s.last, s.perhapsLast}, func(x *revision) bool { return x.is(t) || s.admits(x, t) })
}

// admits reports whether a template is what admission makes of a revision today: it
// has all that spec brought, and is of no other release.
func (s *stability) admits(x *revision, t *corev1.PodTemplateSpec) bool {
	if x == nil || x.brought == nil {
		return false
	}
	of := covers(t, x.brought)
	for _, r := range s.lately() {
		if r.matches(t) && !x.broughtBy(r) {
			return false
		}
		of = of || r.matches(t)
	}
	return of
}

// hasAdmitted reports whether a template is stable, or was, with what admission has added.
func (s *stability) hasAdmitted(t *corev1.PodTemplateSpec) bool {
	return slices.ContainsFunc([]*revision{s.stable, s.last}, func(r *revision) bool { return r != nil && covers(t, r.template) })
}

// adopt notes what has pods when a plan is created.
func (s *stability) adopt(d *deployment) {
	s.adopting, s.adopted = true, nil
	for _, rs := range s.ns.active(d) {
		if t := &rs.Spec.Template; !Held(d.Deployment) || !plan.EqualTemplate(t, &d.Spec.Template) {
			s.adopted = append(s.adopted, t)
		}
	}
}

// midway reports whether the release before this one is under way for certain, and
// whether it perhaps is.
func (s *stability) midway(d *deployment, before *release) (certain, perhaps bool) {
	if before == nil || d == nil || s.stable == nil {
		return false, true
	}
	if s.handedBack(d) {
		return false, false
	}
	return s.sureToHold(d, before) && s.runs(d, before), true
}

// handedBack reports whether the Deployment was handed back so long ago that the
// controller must have seen it, with what spec has brought since.
func (s *stability) handedBack(d *deployment) bool {
	if Held(d.Deployment) || s.ns.now.Sub(d.heldUntil) <= lag {
		return false
	}
	for _, r := range s.lately() {
		if !s.stable.broughtBy(r) && (s.stable.template == nil || !covers(s.stable.template, r.template)) {
			return false
		}
	}
	return true
}

// sureToHold reports whether the controller must have seen the hold and has no reason to
// roll the release back.
func (s *stability) sureToHold(d *deployment, r *release) bool {
	if !Held(d.Deployment) || s.ns.now.Sub(d.heldSince) <= lag || r.rollback {
		return false
	}
	p := s.ns.planOf(d, false)
	return p != nil && p.Spec.Strategy.OnFailure != v1alpha1.FailureRollback && !p.Spec.Paused
}

// runs reports whether a release has had pods for longer than lag, and is not stable.
func (s *stability) runs(d *deployment, r *release) bool {
	return slices.ContainsFunc(s.ns.active(d), func(rs *appsv1.ReplicaSet) bool {
		t := &rs.Spec.Template
		known := s.stable.is(t) || s.last.is(t) || s.admits(s.stable, t)
		return r.matches(t) && !known && s.ns.now.Sub(s.ns.activeSince[rs.UID]) > lag
	})
}

// settle notes what has become stable. It is what the native Deployment runs on all pods,
// once Tranche has handed it back or before a plan has done anything.
func (s *stability) settle(d *deployment, found bool) {
	if !s.ns.runsNatively(d) {
		return
	}
	t, r := &d.Spec.Template, s.current()
	s.finished = nil
	if s.stable.is(t) {
		s.perhaps = nil
		if s.stable.brought == nil && r != nil && covers(t, r.template) {
			s.stable.brought = r.template
		}
		return
	}
	if s.admits(s.stable, t) {
		s.former = append(s.former, was[*revision]{s.stable, s.ns.now})
		s.stable = &revision{t, s.stable.brought}
		return
	}
	s.settleOn(d, r, found)
}

// settleOn notes that the native Deployment runs a template on all pods that was not
// stable; r is the release that spec brings, or nil.
func (s *stability) settleOn(d *deployment, r *release, found bool) {
	t, p := &d.Spec.Template, s.ns.planOf(d, false)
	back := s.last.is(t) || s.admits(s.last, t)
	next := s.revisionOf(t, r, back)
	s.doubtful = s.doubtful || s.perhaps != nil || s.perhapsLast != nil
	gated := r != nil && r.matches(t) && (r.midway || r.unsure)
	switch {
	case s.adopts(p) || found:
		s.stabilise(next, s.stable)
	case s.delivered == nil || !plan.EqualTemplate(s.delivered, t):
		// Another field manager changed the native Deployment: that is drift.
	case back && !s.doubtful && !gated:
		s.stabilise(next, nil) // what a rollback leaves behind is nothing to go back to
	default:
		s.doubtful = back
		s.stabilise(next, s.stable)
		s.end(r)
	}
}

// end notes that what spec brings, if anything, was not delivered by a rollback. If it brings
// what is last now, it came before the hand-back of another release: the controller may
// gate it.
func (s *stability) end(r *release) {
	if r != nil {
		r.ended = r.acted
		r.unsure = r.unsure || s.last.broughtBy(r)
	}
}

// adopts reports whether what runs natively is stable with no hand-back, for a plan or none.
func (s *stability) adopts(p *plannedRelease) bool {
	return s.stable == nil || p == nil || p.Spec.Template == nil || s.adopting
}

// revisionOf returns the revision of a template that runs. The release of spec has brought
// it, or what was last stable, if the template is that again.
func (s *stability) revisionOf(t *corev1.PodTemplateSpec, r *release, back bool) *revision {
	next := &revision{template: t}
	switch {
	case r != nil && r.matches(t):
		next.brought = r.template
	case back: // a user asked for a rollback, and spec brings what was rolled back
		next.brought = s.last.brought
	}
	return next
}

func (s *stability) stabilise(stable, last *revision) {
	for _, r := range []*revision{s.stable, s.last} {
		if r != nil {
			s.former = append(s.former, was[*revision]{r, s.ns.now})
		}
	}
	s.stable, s.last, s.perhaps, s.perhapsLast = stable, last, nil, s.perhaps
	if !s.adopting {
		s.adopted = nil
	}
}

// finish notes a release that all pods run under the hold, and all gates of which are open.
// The controller must say that it hands back. Others may have taken the other pods away,
// or have set N to what runs, and it need not have seen that.
func (l *ledger) finish(d *deployment, p *plannedRelease) {
	t := &d.Spec.Template
	if p.Status.Phase != v1alpha1.PhaseFinalizing || !Held(d.Deployment) || l.stable.is(t) || l.finished.is(t) || !l.ns.runsAlone(d) {
		return
	}
	for _, r := range l.lately() {
		seen := p.Status.UpdateCommit == r.commit && r.matches(t)
		if seen && r.whole(p.Spec.Strategy.Steps) && len(l.ns.availableSince(d, r)) >= int(*d.Spec.Replicas) {
			l.finished = &revision{t, r.template}
		}
	}
}
