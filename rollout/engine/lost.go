package engine

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
	"github.com/tranche-dev/tranche/rollout/engine/position"
)

// This file is about a held Deployment that has no record of its stable revision. A restore
// without the records, or a user who deletes them, leaves it. The stable revision is handed
// back, and then has all pods. So the template of the Deployment becomes stable only where
// no pod is added to it by that, or where its gates have opened (I3).

// stableUnderHold returns the template of the stable revision, and why it is that. It is nil
// if nothing that is there tells.
func stableUnderHold(p *position.Position) (template *corev1.PodTemplateSpec, why because) {
	live := &p.Deployment.Spec.Template
	if t := p.NamedStable(); t != nil {
		return t, "the status names it as the stable revision"
	}
	var most int32
	for _, rs := range p.ReplicaSets {
		if !plan.EqualTemplate(&rs.Spec.Template, live) {
			most = max(most, facts.Size(rs))
		}
	}
	rs := facts.FindReplicaSet(p.ReplicaSets, live)
	switch named := p.Status.StableRevision != ""; {
	case most > 0 && (!named || p.Native()): // several may be left of releases that were superseded
		return p.MostOf(func(rs *appsv1.ReplicaSet) int32 {
			if plan.EqualTemplate(&rs.Spec.Template, live) {
				return 0
			}
			return facts.Size(rs)
		}), "it is what runs"
	case p.Native(), most == 0 && facts.Size(rs) > 0 && facts.Size(rs) >= p.Replicas:
		return live, "it is what runs"
	case !named && runsNothing(p.Facts) && p.Template != nil && !plan.EqualTemplate(p.Template, live):
		return p.Template, "no pod runs, and Git brings it"
	case facts.RevisionOf(p.Observed, live).Name != p.Status.UpdateRevision:
		return nil, ""
	case p.Status.RollingBack, slices.Contains(p.Status.OpenedReplicas, plan.Full):
		return live, "all pods may run it"
	}
	return nil, ""
}

// runsNothing reports whether the Deployment has no pod, and no ReplicaSet is to have one.
func runsNothing(f *facts.Facts) bool {
	return f.Deployment.Status.Replicas == 0 && !slices.ContainsFunc(f.ReplicaSets, func(rs *appsv1.ReplicaSet) bool { return facts.Size(rs) > 0 })
}

// awaitRecords is about such a Deployment if nothing tells its stable revision. Nothing is
// written, and the status keeps what it knows. It is left when a record or a ReplicaSet of
// the stable revision is there, or when the plan is gone.
func awaitRecords(d *draft) {
	observeApproval(d) // it is for the steps that are there when it is first seen
	live := facts.RevisionOf(d.Observed, &d.Deployment.Spec.Template)
	d.Course = d.To(live)
	lost, remedy := "the stable revision", ""
	switch name := d.Status.StableRevision; {
	case name != "":
		lost, remedy = "stable revision "+name, "; or bring the pod template of "+name+" again"
	case runsNothing(d.Facts):
		remedy = "; or bring another pod template, which then has all pods at once, without gates"
	}
	message := fmt.Sprintf("no record and no ReplicaSet of %s is there; Deployment %s stays held at %s, and no pod is added. "+
		"Restore the ControllerRevisions of the Deployment from a back-up, without ownerReferences%s. "+
		"If the plan is removed, the native controller brings all pods to %s, without gates",
		lost, d.Deployment.Name, live.Name, remedy, live.Name)
	if d.Status.Reason != v1alpha1.ReasonRecordsLost {
		d.warn(v1alpha1.ReasonRecordsLost, message)
	}
	d.stall(v1alpha1.ReasonRecordsLost, message)
	d.wait = refusedInterval
}
