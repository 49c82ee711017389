package engine

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
	"github.com/tranche-dev/tranche/rollout/engine/native"
	"github.com/tranche-dev/tranche/rollout/engine/position"
)

// IsUpdate reports whether a ReplicaSet is the one of the revision that the release leads
// to. It also does for the native rollout of a Deployment that has no record.
func IsUpdate(o *Observed, rs *appsv1.ReplicaSet) bool {
	if o.Deployment == nil {
		return false
	}
	p := position.New(o, time.Time{})
	if len(p.StableRecords) == 0 {
		return plan.EqualTemplate(&rs.Spec.Template, &o.Deployment.Spec.Template)
	}
	return p.Resolve(&p.Status).Goal.ReplicaSet == rs
}

// Moves returns the ReplicaSets that the release writes after its hold. They are the update revision's,
// as it is to be made if it is not there, and the stable one if it is there.
func Moves(o Observed) []*appsv1.ReplicaSet {
	if o.Deployment == nil {
		return nil
	}
	p := position.New(&o, time.Time{})
	if len(p.StableRecords) == 0 {
		return nil
	}
	c := p.Resolve(&p.Status)
	var sets []*appsv1.ReplicaSet
	if c.Goal.ReplicaSet == nil {
		rs := native.NewReplicaSet(o.Deployment, c.Goal, facts.MaxRevision(o.ReplicaSets)+1, 1, p.Replicas, p.Replicas)
		facts.SetLabel(o.Deployment, rs, true)
		sets = append(sets, rs)
	}
	for _, r := range []*facts.Revision{c.Goal, c.Stable} {
		if r.ReplicaSet != nil && !slices.Contains(sets, r.ReplicaSet) {
			sets = append(sets, r.ReplicaSet)
		}
	}
	return sets
}

// Held reports whether the native controller is kept off this Deployment by a hold of ours.
func Held(d *appsv1.Deployment) bool { return facts.Held(d) }

// Mislabelled reports whether a Deployment has the label of a hold and no hold. There is no
// record of it, and it is not both paused and of strategy Recreate.
func Mislabelled(o *Observed) bool {
	return v1alpha1.HasHeld(o.Deployment.Labels) && len(o.Records) == 0 && !Held(o.Deployment)
}
