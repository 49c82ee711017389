package gitsync

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/tranche-dev/tranche/gitsync/departed"
	"github.com/tranche-dev/tranche/gitsync/execute"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/outcome"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// usedFor is how long ConfigMaps and Secrets of a deleted GitSource wait for the pods
// that refer to them to go. The options can say otherwise.
const usedFor = time.Minute

// finalize prunes all that a GitSource has applied when it is deleted, or only the
// plans, as it says, and lets it go.
func (r *reconciler) finalize(ctx context.Context, src *source, res *result) error {
	if !controllerutil.ContainsFinalizer(src.gs, finalizer) {
		r.forget(src.name)
		return nil
	}
	uninstalled, err := departed.IsUninstalled(ctx, src.own)
	if err != nil {
		return r.conclude(ctx, src, res, err)
	}
	if uninstalled {
		src.recordEvent(res.outcome.Commit, corev1.EventTypeWarning, v1alpha1.ReasonOrphaned,
			"the GitSource goes with its CRD, and what it applied stays in the cluster: delete the GitSource itself to prune")
		src.gs.Status.Kept = nil
	}
	if !src.gs.Spec.Suspend && !uninstalled {
		err := pruneAll(ctx, src, res)
		patience := cmp.Or(src.options.UsedFor, usedFor)
		if waits := src.gs.Status.Inventory != nil && time.Since(src.gs.DeletionTimestamp.Time) < patience; err != nil || waits {
			res.again = err == nil
			if waits {
				used := plan.JoinNames(departed.InUse(src.gs.Status.Kept))
				res.outcome.InUse = fmt.Sprintf("; waiting, for %s at most, for who uses %s", patience, used)
			}
			return r.conclude(ctx, src, res, err)
		}
	}
	if kept := departed.InUse(src.gs.Status.Kept); len(kept) > 0 {
		src.recordEvent(res.outcome.Commit, corev1.EventTypeWarning, v1alpha1.ReasonOrphaned,
			"the GitSource is deleted, and in the cluster stays what is in use: "+plan.JoinNames(kept))
	}
	old := src.gs.DeepCopy()
	controllerutil.RemoveFinalizer(src.gs, finalizer)
	patch := client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})
	err = src.status.Patch(ctx, src.gs, patch, client.FieldOwner(v1alpha1.ManagerGitSync))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the finalizer of GitSource %s: %w", src.name, err)
	}
	r.forget(src.name)
	return nil
}

// pruneAll deletes everything in the inventory.
func pruneAll(ctx context.Context, src *source, res *result) error {
	res.outcome = outcome.Outcome{Branch: src.gs.Spec.Ref.String(), Commit: src.gs.Status.ObservedCommit, Ending: true}
	var err error
	if src.as, err = src.clients.As(src.gs.Namespace, src.gs.Spec.ServiceAccountName); err != nil {
		return err
	}
	executed, err := execute.Prune(ctx, src.execution(&res.outcome), inventory.Read(src.gs.Status.Inventory).Without(inventory.Set{}))
	res.add(executed)
	for _, p := range plan.ProblemsOf(err) {
		const way = "to let the GitSource go and leave the rest in the cluster, set spec.suspend to true"
		p.Hint = strings.TrimPrefix(p.Hint+"; "+way, "; ")
	}
	return err
}

// recordEndedAnyway adds the ended releases of all plans where a commit was refused:
// releases of an older one go on and end meanwhile. The status is written with the
// refusal.
func recordEndedAnyway(ctx context.Context, src *source) {
	if err := departed.AddEnded(ctx, src.own, src.gs); err != nil {
		src.log.Info("Ended releases not noted", "because", err.Error())
	}
}
