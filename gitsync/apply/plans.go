package apply

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/inventory"
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
	if old != nil && (named == nil || takesOver(named, old)) {
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

// takesOver reports whether a BatchRelease is to have the status of another one
// for the same Deployment. It is not where it governs the Deployment already: a
// plan that gets its old name back before the other one is deleted. The
// age of two that were created in one second is the same. If the status of one is a copy,
// which no generation has, it governs nothing yet.
func takesOver(successor, old *v1alpha1.BatchRelease) bool {
	tie := old.CreationTimestamp.Equal(&successor.CreationTimestamp)
	return plan.ComparePlans(old, successor) < 0 || successor.Status.Phase == "" || tie && successor.Status.ObservedGeneration == 0
}

// Records returns the ControllerRevisions of Tranche that one of the owners owns.
func Records(ctx context.Context, c client.Reader, namespace string, owners ...types.UID) ([]appsv1.ControllerRevision, error) {
	var list appsv1.ControllerRevisionList
	if err := c.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{plan.LabelManagedBy: plan.ManagedBy}); err != nil {
		return nil, fmt.Errorf("listing the ControllerRevisions of %s: %w", namespace, err)
	}
	return slices.DeleteFunc(list.Items, func(c appsv1.ControllerRevision) bool { return !isOwnedBy(&c, owners...) }), nil
}

// isOwnedBy reports whether one of the owners owns an object.
func isOwnedBy(o client.Object, owners ...types.UID) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return slices.Contains(owners, r.UID) })
}
