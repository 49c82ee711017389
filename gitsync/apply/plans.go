package apply

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/takeover"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// planReads is what was read of the plans of a namespace.
type planReads struct {
	lists int  // of single Deployments
	whole bool // and all of them at once
}

const (
	// fewPlans is how many Deployments of a namespace have their plans listed one by one.
	fewPlans = 8
	// plansOfAList is how many plans are listed at once for each list that was made before. They
	// take about as long.
	plansOfAList = 20
)

// PlansFor returns the BatchReleases for a Deployment, and reads them once in a sync. The
// first one governs. One that is being deleted governs nothing, even while it has finalizers.
// It reads past the cache, which may not have a plan yet, or may still have it: the plan
// decides who writes the template.
//
// The API server selects the plans of a Deployment, so that the cost is that of the source and
// not of the namespace. After some Deployments, one list may have the plans of all. If the
// namespace has too many of them, the next one is tried after as many Deployments again.
func (o *Observer) PlansFor(ctx context.Context, deployment client.ObjectKey) ([]v1alpha1.BatchRelease, error) {
	if plans, ok := o.plans[deployment]; ok {
		return plans, nil
	}
	n := o.counts[deployment.Namespace]
	if n == nil {
		n = &planReads{}
		o.counts[deployment.Namespace] = n
	}
	if n.lists >= fewPlans && n.lists&(n.lists-1) == 0 && !n.whole {
		var list v1alpha1.BatchReleaseList
		if err := o.Own.List(ctx, &list, client.InNamespace(deployment.Namespace), client.Limit(int64(n.lists)*plansOfAList)); err != nil {
			return nil, fmt.Errorf("listing the BatchReleases of %s: %w", deployment.Namespace, err)
		}
		if n.whole = list.Continue == ""; n.whole {
			o.keepPlans(slices.DeleteFunc(list.Items, func(br v1alpha1.BatchRelease) bool {
				_, read := o.plans[client.ObjectKey{Namespace: br.Namespace, Name: br.Spec.WorkloadRef.Name}]
				return read
			}))
		}
	}
	if n.whole {
		return o.plans[deployment], nil
	}
	var list v1alpha1.BatchReleaseList
	if err := o.Own.List(ctx, &list, client.InNamespace(deployment.Namespace),
		client.MatchingFields{v1alpha1.FieldWorkload: deployment.Name}); err != nil {
		return nil, fmt.Errorf("listing the BatchReleases for Deployment %s: %w", deployment, err)
	}
	n.lists++
	o.plans[deployment] = nil // also if there is none
	o.keepPlans(list.Items)
	return o.plans[deployment], nil
}

// keepPlans adds plans to those of their Deployments.
func (o *Observer) keepPlans(plans []v1alpha1.BatchRelease) {
	for i := range plans {
		br := &plans[i]
		deployment := client.ObjectKey{Namespace: br.Namespace, Name: br.Spec.WorkloadRef.Name}
		if br.DeletionTimestamp != nil {
			o.ending[deployment] = append(o.ending[deployment], *br)
			continue
		}
		all := append(o.plans[deployment], *br)
		slices.SortFunc(all, func(a, b v1alpha1.BatchRelease) int { return plan.ComparePlans(&a, &b) })
		o.plans[deployment] = all
	}
}

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
