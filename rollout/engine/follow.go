package engine

import (
	"fmt"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/action"
	"github.com/tranche-dev/tranche/rollout/engine/position"
	"github.com/tranche-dev/tranche/rollout/engine/rolling"
)

// followReplicas keeps the sizes of a held Deployment at N if no release may go on. The plan is
// then paused before the release has begun, or plan or template cannot be used. The hold
// keeps the native controller from doing so, except with one active ReplicaSet.
//
// If there is nothing to split, at 0 replicas or with only stable pods, the Deployment is
// handed back at its stable template (H4). With pods it stays held while the hand-back is
// refused. While creations of ReplicaSets are refused, those that are there follow. While
// resizes are, no size is written.
func followReplicas(d *draft) {
	if len(d.StableRecords) == 0 || !d.Touched() {
		return
	}
	defer func(before position.Course) { d.Course = before }(d.Course)
	d.Course = d.From(d.Recorded(0)).To(d.Templated())
	switch sets := position.Following(&d.Position); {
	case d.Replicas == 0 || d.Seen() && d.OnlyStable() && !d.Shadowed(d.Stable.Template) && d.RefusedReason != v1alpha1.ReasonHandBackRefused:
		d.handBack("there is nothing to split", d.Stable.Template)
	case !Held(d.Deployment):
		d.warn(v1alpha1.ReasonDriftCorrected, "strategy or paused of the held Deployment were changed; the hold is put back")
		d.do(Hold{Why: "the hold was changed by another field manager", Template: &d.Deployment.Spec.Template, Revision: d.Goal.Name})
	case d.RefusedReason == v1alpha1.ReasonWriteRefused && (!d.CreationRefused || position.LacksReplicaSet(sets)):
	case d.Seen() && (rolling.Active(position.Numbers(sets)) > 1 || position.IsAlone(&d.Position, sets)):
		moveSizes(d, sets, action.Why(fmt.Sprintf("%d replicas, and no release may go on", d.Replicas)))
	}
}
