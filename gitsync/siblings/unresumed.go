package siblings

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Unresumed names the plans that a commit moved from a source to a suspended one. No source
// applies them meanwhile: approvals and reverts have no effect. The heirs are those of the
// inventory. Plans that left the inventory in an earlier sync still have the source's labels.
// Nothing is rendered where there are none.
func (a Access) Unresumed(
	ctx context.Context, gs *v1alpha1.GitSource, s *repository.Snapshot, wanted inventory.Set, heirs Heirs,
) (plan.Problems, error) {
	sources, err := a.suspended(ctx, gs)
	if err != nil || len(sources) == 0 {
		return nil, err
	}
	plans, err := a.plansWithout(ctx, gs, wanted)
	if err != nil || len(plans) == 0 {
		return nil, err
	}
	found, before := Heirs{}, inventory.Read(gs.Status.Inventory)
	maps.Copy(found, heirs)
	earlier := slices.DeleteFunc(slices.Clone(plans), func(e inventory.Entry) bool { _, ok := before[e.ID()]; return ok })
	for _, other := range sources {
		if err := a.has(ctx, s, other, earlier, found); err != nil {
			return nil, err
		}
	}
	var ps plan.Problems
	for _, e := range plans {
		if h := found[e.ID()]; h.Suspended && h.Cannot == "" {
			ps = append(ps, &plan.Problem{
				Reason: v1alpha1.ReasonHandedOver, Where: e.String(), Err: errors.New(h.Has()),
				Hint: "set spec.suspend of " + h.String() + " to false",
			})
		}
	}
	return ps, nil
}

// suspended returns the suspended sources of the branch of a source.
func (a Access) suspended(ctx context.Context, gs *v1alpha1.GitSource) ([]*v1alpha1.GitSource, error) {
	var all v1alpha1.GitSourceList
	if err := a.Cached.List(ctx, &all, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		return nil, fmt.Errorf("listing the GitSources: %w", err)
	}
	var list []*v1alpha1.GitSource
	for i := range all.Items {
		if other := &all.Items[i]; other.Spec.Suspend && Shares(other, gs) {
			list = append(list, other.DeepCopy())
		}
	}
	return list, nil
}

// plansWithout returns the plans of a source in the cluster that its commit does not have.
func (a Access) plansWithout(ctx context.Context, gs *v1alpha1.GitSource, wanted inventory.Set) ([]inventory.Entry, error) {
	var all v1alpha1.BatchReleaseList
	if err := a.Cached.List(ctx, &all, client.MatchingLabels(inventory.Labels(gs)), client.UnsafeDisableDeepCopy,
		client.DisableReadYourWritesConsistency); err != nil {
		return nil, fmt.Errorf("listing the BatchReleases of GitSource %s: %w", client.ObjectKeyFromObject(gs), err)
	}
	live := inventory.Set{}
	for i := range all.Items {
		if br := &all.Items[i]; br.DeletionTimestamp == nil {
			live.Add(inventory.OfRelease(br))
		}
	}
	return live.Without(wanted), nil
}

// has adds another source as the heir of the plans that it renders and may write. Nothing is
// known of one that does not render.
func (a Access) has(
	ctx context.Context, s *repository.Snapshot, other *v1alpha1.GitSource, plans []inventory.Entry, found Heirs,
) error {
	as, err := a.As(other.Namespace, other.Spec.ServiceAccountName)
	if err != nil {
		return err
	}
	may := found.mayHave(ctx, as, plans)
	if len(may) == 0 {
		return ctx.Err()
	}
	d, err := a.render(s, other)
	if err == nil {
		found.Add(other, may, inventory.OfSet(d.Set), "")
	}
	return ctx.Err()
}
