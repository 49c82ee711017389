package gitsync

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

// noteEnded writes the names of the releases of plans into the status of the
// GitSource, before the plans are deleted. The release under way ends with its plan.
func (l *look) noteEnded(ctx context.Context, plans ...inventory.Entry) error {
	if l.outcome.Ending {
		return nil
	}
	list, err := l.livePlans(ctx, plans)
	if err != nil {
		return err
	}
	for _, br := range list {
		if s := &br.Status; desired.IsUnderWay(br, s.UpdateCommit) && s.UpdateCommit != "" {
			s.EndedReleases = slices.Insert(s.EndedReleases, 0, v1alpha1.ReleaseName{Revision: s.UpdateRevision, Commit: s.UpdateCommit})
		}
	}
	replay.AddEnded(&l.gs.Status, time.Now(), list...)
	return l.save(ctx)
}

// noteEndedAnyway adds the ended releases of all plans where a commit was refused:
// releases of an older one go on and end meanwhile. The status is written with the
// refusal.
func (l *look) noteEndedAnyway(ctx context.Context) {
	plans := slices.DeleteFunc(inventory.Read(l.gs.Status.Inventory).Without(inventory.Set{}), func(e inventory.Entry) bool { return !inventory.IsRelease(e) })
	list, err := l.livePlans(ctx, plans)
	if err != nil {
		l.log.Info("not noted which releases have ended", "because", err.Error())
		return
	}
	replay.AddEnded(&l.gs.Status, time.Now(), list...)
}

// livePlans reads the BatchReleases of this source among entries. One that is being
// deleted counts as gone: where another has taken over from it, its release goes on.
func (l *look) livePlans(ctx context.Context, plans []inventory.Entry) ([]*v1alpha1.BatchRelease, error) {
	var list []*v1alpha1.BatchRelease
	for _, e := range plans {
		br := &v1alpha1.BatchRelease{}
		err := l.own.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: e.Name}, br)
		if apierrors.IsNotFound(err) || err == nil && (!inventory.IsOwned(br, l.gs) || br.DeletionTimestamp != nil) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("getting %s: %w", e, err)
		}
		list = append(list, br)
	}
	return list, nil
}
