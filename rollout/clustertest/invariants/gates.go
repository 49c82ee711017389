package invariants

import (
	"slices"
	"time"

	"github.com/tranche-dev/tranche/plan"
)

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
