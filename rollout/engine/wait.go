package engine

import "github.com/tranche-dev/tranche/plan/v1alpha1"

// decideGate is about a step whose pods are available. It is left when its
// gate opens.
func decideGate(d *draft) {
	noteRequest(d)
	if d.status.CurrentStepState == v1alpha1.StepUpgrade && !opensNow(&d.position) {
		d.setState(v1alpha1.StepBlocking)
	}
	timeGate(d)
	g := check(&d.position)
	d.wait = g.wait
	if g.open {
		passGate(d, &g)
		return
	}
	d.report(g.reason, g.message)
}

// timeGate lets the time of the step's own gate run from when the release waits there.
// Before that the release waits at a gate before the step, which an edit has raised. No
// pause of the step runs then. One begins when the gate before it is gone, as it is if N
// has shrunk.
func timeGate(d *draft) {
	switch {
	case d.capped():
		d.status.StepStateTime = nil
	case d.status.StepStateTime == nil:
		d.status.StepStateTime = d.time()
	}
}

// passGate opens the gate and begins the next step, or the present one where the gate
// was before that. It moves nothing.
func passGate(d *draft, g *gate) {
	step, next := d.status.CurrentStepIndex, leadsTo(&d.position)
	if g.by.By != "" {
		g.by.Step, g.by.Time = step, *d.time()
		d.status.Approvals = append(d.status.Approvals, g.by)
	}
	if g.reason != "" {
		d.event(g.reason, g.message)
	}
	d.status.OpenedReplicas = d.openTo(next)
	d.enter(next, v1alpha1.StepUpgrade)
	d.status.Phase = v1alpha1.PhaseRollingUpdate
	d.report(reasonUnderWay(&d.position), d.progress())
}
