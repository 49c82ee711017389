package rollout

import (
	"cmp"
	"context"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/podcauses"
)

const (
	// explainAfter is for how long pods may be on their way before it is asked why they
	// are not ready.
	explainAfter = 10 * time.Second
	// explainEvery is how often it is asked then.
	explainEvery = 15 * time.Second
)

// explain puts into a decision why pods that are on their way are not ready, long before
// their deadline. It asks at once if the ReplicaSet controller could not create them. It
// also asks at once if the step had its pods and has lost them. A pod that crashes again
// and again is ready in between.
func (r *reconciler) explain(ctx context.Context, o engine.Observed, d engine.Decision) (engine.Decision, error) {
	since := cmp.Or(d.Status.ProgressTime, d.Status.ReasonTime) // a native rollout has no progress of ours
	if !d.Unready || since == nil {
		return d, nil
	}
	next := explainAfter - r.now().Sub(since.Time)
	lost := d.Status.CurrentStepState == v1alpha1.StepUpgrade && d.Status.CurrentStepTarget > 0
	if next <= 0 || lost || slices.ContainsFunc(o.ReplicaSets,
		func(rs *appsv1.ReplicaSet) bool { return podcauses.NotCreated(rs) != nil && engine.IsUpdate(&o, rs) }) {
		var err error
		if o.Pods, err = r.pods.Find(ctx, &o); err != nil {
			return d, err
		}
		d, next = r.clock.Decide(o), explainEvery
	}
	if d.Wait == 0 || next < d.Wait {
		d.Wait = next
	}
	return d, nil
}
