package terms

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// secretsNotSigned refuses a commit that brings a Secret which a metric names. Its headers may
// decide what the server answers about, and no status has a digest of a Secret to compare it
// with. The set has the plans that govern, and loses those with such a metric.
func (g *governor) secretsNotSigned(set *plan.Set) plan.Problems {
	var ps plan.Problems
	unsure := map[types.NamespacedName]bool{}
	for i := range set.Releases {
		r := &set.Releases[i]
		if r.Plan.Spec.Strategy.Analysis == nil {
			continue
		}
		for _, m := range r.Plan.Spec.Strategy.Analysis.Metrics {
			for _, o := range g.state.Set.Objects {
				if o.GroupVersionKind().GroupKind() != inventory.SecretKind || o.GetNamespace() != r.Plan.Namespace || o.GetName() != secretOf(&m) {
					continue
				}
				ps = append(ps, &plan.Problem{
					Reason: v1alpha1.ReasonMetricNotSigned, Where: plan.Where(o.File, o.String()+": metadata.name"),
					Err: fmt.Errorf("metric %s of BatchRelease %s has its headers from this Secret, which a commit without a signer could change",
						m.Name, plan.ReleaseName(r.Plan)),
					Hint: "remove the manifest from the branch, and change the Secret with kubectl",
				})
				unsure[plan.WorkloadOf(r)] = true
			}
		}
	}
	set.LeaveOut(func(deployment types.NamespacedName) bool { return unsure[deployment] })
	return ps
}

// secretOf names the Secret of a metric; empty: it has none.
func secretOf(m *v1alpha1.Metric) string {
	var ref *v1alpha1.LocalObjectReference
	switch {
	case m.Prometheus != nil:
		ref = m.Prometheus.SecretRef
	case m.Web != nil:
		ref = m.Web.SecretRef
	case m.Datadog != nil:
		ref = m.Datadog.SecretRef
	}
	if ref == nil {
		return ""
	}
	return ref.Name
}
