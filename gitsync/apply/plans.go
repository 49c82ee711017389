package apply

import (
	"context"
	"slices"

	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/takeover"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// PlanOf returns the BatchRelease in the cluster that governs the Deployment of a release.
// That is the one of its name, or the one that it takes over from. It is nil if there is
// neither.
func (o *Observer) PlanOf(ctx context.Context, set *plan.Set, release *plan.Release) (*v1alpha1.BatchRelease, error) {
	named, err := o.LivePlan(ctx, release)
	if err != nil {
		return nil, err
	}
	plans, err := o.PlansFor(ctx, plan.WorkloadOf(release))
	if err != nil {
		return nil, err
	}
	var old *v1alpha1.BatchRelease
	for i := range plans {
		p := &plans[i]
		if inventory.IsOwned(p, o.Source) && !HasPlan(set, p) && (old == nil || plan.ComparePlans(p, old) < 0) {
			old = p
		}
	}
	if old != nil && (named == nil || takeover.TakesOver(named, old)) {
		return old, nil
	}
	return named, nil
}

// HasPlan reports whether a set has a plan of the name of a BatchRelease.
func HasPlan(set *plan.Set, p *v1alpha1.BatchRelease) bool {
	return slices.ContainsFunc(set.Releases, func(r plan.Release) bool {
		return r.Plan.Namespace == p.Namespace && r.Plan.Name == p.Name
	})
}

// CommitAnnotations are the annotations of a BatchRelease that say something of its commit.
var CommitAnnotations = []string{v1alpha1.AnnotationCommitAuthor, v1alpha1.AnnotationCommitURL, v1alpha1.AnnotationRejected}
