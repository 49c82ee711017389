package position

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
)

// This file is about a held Deployment that has no record of its stable revision. A restore
// without the records, or a user who deletes them, leaves it. The stable revision is handed
// back, and then has all pods. So the template of the Deployment becomes stable only where
// no pod is added to it by that, or where its gates have opened (I3).

// StableUnderHold returns the template of the stable revision, and why it is that. It is nil
// if nothing that is there tells.
func (p *Position) StableUnderHold() (template *corev1.PodTemplateSpec, why string) {
	live := &p.Deployment.Spec.Template
	if t := p.NamedStable(); t != nil {
		return t, "the status names it as the stable revision"
	}
	most := int32(0)
	other := func(rs *appsv1.ReplicaSet) int32 { return otherSize(rs, live) }
	for _, rs := range p.ReplicaSets {
		most = max(most, other(rs))
	}
	rs := facts.FindReplicaSet(p.ReplicaSets, live)
	switch named := p.Status.StableRevision != ""; {
	case most > 0 && (!named || p.Native()): // several may be left of releases that were superseded
		return p.MostOf(other), "it is what runs"
	case p.Native(), most == 0 && facts.Size(rs) > 0 && facts.Size(rs) >= p.Replicas:
		return live, "it is what runs"
	case !named && RunsNothing(p.Facts) && p.Template != nil && !plan.EqualTemplate(p.Template, live):
		return p.Template, "no pod runs, and Git brings it"
	case facts.RevisionOf(p.Observed, live).Name != p.Status.UpdateRevision:
		return nil, ""
	case p.Status.RollingBack, slices.Contains(p.Status.OpenedReplicas, plan.Full):
		return live, "all pods may run it"
	}
	return nil, ""
}

// otherSize returns the size of a ReplicaSet of another template; 0 for one of this template.
func otherSize(rs *appsv1.ReplicaSet, template *corev1.PodTemplateSpec) int32 {
	if plan.EqualTemplate(&rs.Spec.Template, template) {
		return 0
	}
	return facts.Size(rs)
}

// RunsNothing reports whether the Deployment has no pod, and no ReplicaSet is to have one.
func RunsNothing(f *facts.Facts) bool {
	return f.Deployment.Status.Replicas == 0 &&
		!slices.ContainsFunc(f.ReplicaSets, func(rs *appsv1.ReplicaSet) bool { return facts.Size(rs) > 0 })
}
