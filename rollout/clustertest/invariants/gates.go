package invariants

import (
	"slices"

	"github.com/tranche-dev/tranche/plan"
)

// openGates opens every gate of the release under way that could be open by now.
func (l *ledger) openGates() {
	d := l.ns.deploymentNamed(l.name)
	if d == nil {
		return
	}
	r, p := l.current(), l.ns.planOf(d, false)
	if r == nil || p == nil || p.UID != l.plan {
		return
	}
	for _, rs := range l.ns.setsOf(d) {
		if r.matches(&rs.Spec.Template) {
			r.names[hashOf(rs)] = true
		}
	}
	last := len(p.Spec.Strategy.Steps) - 1
	l.openEdited(d, r, last)
	for l.openNext(d, p, r, last) {
		r.position, r.entered, r.completed = r.position+1, l.ns.now, -1
		r.waits[r.position] = &wait{}
	}
	l.finish(d, p)
}

// openEdited opens the gates that an edit of the steps has raised or taken away.
func (l *ledger) openEdited(d *deployment, r *release, last int) {
	now := l.ns.now
	for _, n := range d.replicas.within(now) {
		if len(r.opened) > 0 && most(l.steps[:1], n) > most(r.opened, n) && r.approved(d, l.steps, 0, now) {
			r.open(l.steps[0]) // an edit raised the first step, and it was approved
		}
	}
	if r.position >= max(0, last-1) && last > 0 && r.approved(d, l.steps, last-1, now) && r.approved(d, l.steps, last, now) {
		r.open(plan.Full) // an edit has left no gate to ask
	}
}

// openNext opens the gates up to the one of the step that is next, and reports whether
// that one has opened.
func (l *ledger) openNext(d *deployment, p *plannedRelease, r *release, last int) bool {
	next := false
	for i := 0; i <= r.position && i < last; i++ {
		if l.opens(d, p, r, i) {
			r.open(l.steps[:i+2]...)
			next = i == r.position
		}
	}
	return next
}

// opens reports whether the gate of step i could open now.
func (l *ledger) opens(d *deployment, p *plannedRelease, r *release, i int) bool {
	target := l.ns.targetOf(d, l.steps[:i+1], r.opened)
	if target < 0 {
		return false // to zero and back opens no gate
	}
	w, now := r.waitAt(i), l.ns.now
	low := min(target, w.target)
	low -= l.ns.tolerated(d, low)
	if !w.see(l.ns.availableSince(d, r), target, low, r.entered, now) || !slices.Contains(p.paused.within(now), false) {
		return false
	}
	approved := p.completes(r, l.steps, i, now) || r.approved(d, l.steps, i, now)
	return p.passes(i, now.Sub(w.since), approved, r.overridden(d, l.steps, i, now), now)
}
