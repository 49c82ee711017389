package gitsync

import (
	"context"
	"fmt"
	"maps"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/changeset"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// keepShards gives the releases of a source the labels by which controllers share the work. A sync
// that applies them has done so. Another one would leave them to the controller that worked for the
// source before. That one may be gone.
func keepShards(ctx context.Context, src *source) {
	if s := src.options.Selector; s == nil || s.Empty() {
		return // one controller works for all
	}
	for _, e := range inventory.Read(src.gs.Status.Inventory) {
		if e.GVK.GroupKind() != inventory.ReleaseKind {
			continue
		}
		if err := keepShard(ctx, src, e); err != nil {
			src.log.Error(err, "The release stays with the controller that it has")
		}
	}
}

func keepShard(ctx context.Context, src *source, e inventory.Entry) error {
	var br, sharded *v1alpha1.BatchRelease
	for _, from := range []client.Reader{src.status, src.own} { // the cache may not have what this sync has written
		br = &v1alpha1.BatchRelease{}
		if err := from.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: e.Name}, br); err != nil {
			return client.IgnoreNotFound(err)
		}
		sharded = br.DeepCopy()
		changeset.Shard(src.options.Selector, src.gs, sharded)
		if maps.Equal(br.Labels, sharded.Labels) || !inventory.IsOwned(br, src.gs) {
			return nil
		}
	}
	if err := src.status.Patch(ctx, sharded, client.MergeFrom(br), client.FieldOwner(v1alpha1.ManagerGitSync)); err != nil {
		return fmt.Errorf("writing the labels of %s: %w", e, err)
	}
	src.log.Info("Labels written", "release", e.String(), "because", "its source has another controller")
	return nil
}
