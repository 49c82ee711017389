package engine

import (
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/gates"
	"github.com/tranche-dev/tranche/rollout/engine/position"
	"github.com/tranche-dev/tranche/rollout/engine/verdict"
)

// decideGate is about a step whose pods are available. It is left when its
// gate opens.
func decideGate(d *draft) {
	noteRequest(d)
	deferToAnalysis(d)
	if d.Status.CurrentStepState == v1alpha1.StepUpgrade && !gates.OpensNow(&d.Position) {
		d.setState(v1alpha1.StepBlocking)
	}
	timeGate(d)
	beginAnalysis(d)
	g := gates.Check(&d.Position)
	d.wait, d.needsReady = g.Wait, g.NeedsReady
	switch {
	case g.Open && d.LastStep(): // its verdict has come with this round, and the next one moves
		d.report(v1alpha1.ReasonUpgrading, d.Progress())
	case g.Open:
		passGate(d, &g)
	case !stalledByVerdict(d):
		d.report(g.Reason, g.Message)
	}
}

// timeGate lets the time of the step's own gate run from when the release waits there. Before
// that the release waits at a gate before the step, which an edit has raised. No pause of the
// step runs then. One begins when the gate before it is gone, as it is if N has shrunk.
func timeGate(d *draft) {
	switch {
	case d.Capped():
		d.Status.StepStateTime = nil
	case d.Status.StepStateTime == nil:
		d.Status.StepStateTime = d.Time()
	}
}

// passGate opens the gate and begins the next step, or the present one where the gate
// was before that. It moves nothing.
func passGate(d *draft, g *gates.Gate) {
	next := gates.LeadsTo(&d.Position)
	if g.By.By != "" {
		position.NoteApproval(&d.Position, &g.By, d.Time())
		overrideEvent(d, &g.By)
	}
	if g.Reason != "" {
		d.event(g.Reason, g.Message)
	}
	position.TimeStep(&d.Status, d.Time(), true)
	verdict.RecordAll(d.Status.Analysis, d.Spec.Strategy.Analysis)
	verdict.Restart(d.Status.Analysis, gates.OverrideOf(&d.Position))
	d.Status.OpenedReplicas = d.OpenTo(next)
	d.enter(next, v1alpha1.StepUpgrade)
	d.Status.Phase = v1alpha1.PhaseRollingUpdate
	d.report(position.ReasonUnderWay(&d.Position), d.Progress())
}
