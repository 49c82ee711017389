package departed

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/replay"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// AddReleases adds the releases of plans that are deleted next to a status. The release under
// way ends with its plan.
func AddReleases(ctx context.Context, own client.Reader, gs *v1alpha1.GitSource, plans ...inventory.Entry) error {
	list, err := livePlans(ctx, own, gs, plans)
	if err != nil {
		return err
	}
	for _, br := range list {
		if s := &br.Status; desired.IsUnderWay(br, s.UpdateCommit) && s.UpdateCommit != "" {
			ended := v1alpha1.ReleaseName{Revision: s.UpdateRevision, Commit: s.UpdateCommit}
			s.EndedReleases = slices.Insert(s.EndedReleases, 0, ended)
		}
	}
	replay.AddEnded(&gs.Status, time.Now(), list...)
	return nil
}

// AddEnded adds the ended releases of all plans of a source to its status.
func AddEnded(ctx context.Context, own client.Reader, gs *v1alpha1.GitSource) error {
	plans := inventory.Read(gs.Status.Inventory).Without(inventory.Set{})
	plans = slices.DeleteFunc(plans, func(e inventory.Entry) bool { return !inventory.IsRelease(e) })
	list, err := livePlans(ctx, own, gs, plans)
	if err == nil {
		replay.AddEnded(&gs.Status, time.Now(), list...)
	}
	return err
}

// livePlans reads the BatchReleases of a source among entries. One that is being
// deleted counts as gone: where another has taken over from it, its release goes on.
func livePlans(ctx context.Context, own client.Reader, gs *v1alpha1.GitSource, plans []inventory.Entry) ([]*v1alpha1.BatchRelease, error) {
	var list []*v1alpha1.BatchRelease
	for _, e := range plans {
		br := &v1alpha1.BatchRelease{}
		err := own.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: e.Name}, br)
		if apierrors.IsNotFound(err) || err == nil && (!inventory.IsOwned(br, gs) || br.DeletionTimestamp != nil) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("getting %s: %w", e, err)
		}
		list = append(list, br)
	}
	return list, nil
}
