package invariants

import (
	"time"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

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
