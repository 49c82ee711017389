package engine

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/position"
)

// draft is the decision of a round while it is being made.
type draft struct {
	position.Position
	actions []Action
	events  []Event
	wait    time.Duration
	stalled bool
	// unreleased: nothing is under way, and yet not what spec.template says runs.
	unreleased bool
	needsPods  bool
	needsReady bool
	unready    bool // pods are on their way
	growth     *Resize
	// analysisWait is when a verdict may change by itself; zero without one.
	analysisWait time.Duration
}

// newDraft returns the draft of a round that has decided nothing yet.
func newDraft(o *Observed, now time.Time) *draft {
	return &draft{
		Position: position.New(o, now),
		stalled:  meta.IsStatusConditionTrue(o.Release.Status.Conditions, v1alpha1.ConditionStalled),
	}
}

func (d *draft) do(a Action) { d.actions = append(d.actions, a) }

func (d *draft) event(reason, message string) {
	d.events = append(d.events, Event{Reason: reason, Message: message})
}

func (d *draft) warn(reason, message string) {
	d.events = append(d.events, Event{Warning: true, Reason: reason, Message: message})
}
