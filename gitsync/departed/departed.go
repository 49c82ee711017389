package departed

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/prune"
	"github.com/tranche-dev/tranche/gitsync/siblings"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Input is what is needed to prune what left the branch.
type Input struct {
	// Source is the GitSource. Its status.kept is set.
	Source *v1alpha1.GitSource
	// Account writes as the account of the source, and Own reads past the cache.
	Account client.Client
	Own     client.Reader
	// Heirs are the other sources that have an object now.
	Heirs siblings.Heirs
	// Ending: the GitSource is deleted.
	Ending bool
	// Record is called for each event at once; the object is nil for one about the source.
	Record func(about runtime.Object, reason, message string)
	// BeforeEnd is called before BatchReleases are deleted, see [AddReleases].
	BeforeEnd func(context.Context, ...inventory.Entry) error
}

// Result is what has become of the objects.
type Result struct {
	// Kept stays in the inventory.
	Kept inventory.Set
	// Unclear: objects are kept until another source renders.
	Unclear bool
	// AutoscalerGone: Git sets again what an autoscaler had.
	AutoscalerGone bool
}

// Run deletes what left the branch, if the GitSource says so, and returns what a later sync
// has to check again. The status lists what is still in use. Plans go in any case: with theirs
// gone, Deployments are handed back, and nothing that runs goes with a plan. An object that
// has an heir stays in the cluster, and so does its plan: releases go on.
func Run(ctx context.Context, in Input, gone []inventory.Entry) (Result, error) {
	h := in.Heirs
	gone, over, unclear := h.Split(gone)
	for _, e := range over {
		message := fmt.Sprintf("%s left the part of the branch that this GitSource applies, and stays in the cluster: %s",
			e, h[e.ID()].Has())
		in.Record(inventory.Named(e), v1alpha1.ReasonHandedOver, message)
	}
	in.Source.Status.Kept = nil
	kept, autoscalers, err := in.pruneOrphans(ctx, gone)
	said := h.Unclear()
	for _, e := range unclear {
		if inventory.IsRelease(e) && in.isGone(ctx, e) {
			continue // it was for a Deployment that has stayed, and ended with the hand-back
		}
		kept.Add(e)
		in.Source.Status.Kept = append(in.Source.Status.Kept, v1alpha1.KeptObject{ID: e.ID(), UsedBy: said[e.ID()]})
	}
	return Result{Kept: kept, Unclear: len(unclear) > 0, AutoscalerGone: autoscalers}, err
}

// pruneOrphans prunes objects that no other source has. It returns what stays, and whether an
// autoscaler is gone.
func (in *Input) pruneOrphans(ctx context.Context, gone []inventory.Entry) (kept inventory.Set, autoscaler bool, err error) {
	if !in.Source.Spec.Prune {
		stays := slices.DeleteFunc(slices.Clone(gone), inventory.IsRelease)
		if len(stays) > 0 {
			in.Record(nil, v1alpha1.ReasonOrphaned, "left the branch and stays in the cluster, since spec.prune is false: "+
				plan.JoinNames(inventory.Names(stays)))
		}
		gone = slices.DeleteFunc(slices.Clone(gone), func(e inventory.Entry) bool { return !inventory.IsRelease(e) })
	}
	if len(gone) == 0 {
		return inventory.Set{}, false, nil
	}
	plans := slices.DeleteFunc(slices.Clone(gone), func(e inventory.Entry) bool { return !inventory.IsRelease(e) })
	if err := in.BeforeEnd(ctx, plans...); err != nil {
		return inventory.SetOf(gone), false, err
	}
	result, err := prune.Run(ctx, prune.Input{Source: in.Source, As: in.Account, Own: in.Own}, gone)
	// Once an autoscaler is gone, Git sets again what it had.
	for _, e := range gone {
		if _, stays := result.Kept[e.ID()]; e.GVK.GroupKind() == inventory.AutoscalerKind && !stays {
			autoscaler = true
		}
	}
	if len(result.Deleted) > 0 {
		because := "it left the branch"
		if in.Ending {
			because = "the GitSource is deleted"
		}
		in.Record(nil, v1alpha1.ReasonPruned, "deleted, since "+because+": "+plan.JoinNames(result.Deleted))
	}
	for _, o := range result.Left {
		in.Record(inventory.Named(o.Entry), v1alpha1.ReasonOrphaned, o.String()+" left the branch and stays in the cluster: "+o.Because)
	}
	in.Source.Status.Kept = result.InUse
	return result.Kept, autoscaler, err
}

// isGone reports whether an object is surely not in the cluster.
func (in *Input) isGone(ctx context.Context, e inventory.Entry) bool {
	live, err := inventory.Get(ctx, in.Own, e)
	return err == nil && live == nil
}

// InUse says what is in use, and by whom.
func InUse(kept []v1alpha1.KeptObject) []string {
	var list []string
	for _, k := range kept {
		if e, ok := inventory.Parse(v1alpha1.InventoryEntry{ID: k.ID}); ok {
			list = append(list, e.String()+" ("+k.UsedBy+")")
		}
	}
	return list
}

// IsUninstalled reports whether the GitSource goes because its CRD does. A user who
// deletes a CRD means Tranche, and not what all sources have applied.
func IsUninstalled(ctx context.Context, own client.Reader) (bool, error) {
	const name = "gitsources." + v1alpha1.Group
	var crd metav1.PartialObjectMetadata
	crd.SetGroupVersionKind(inventory.CRDKind.WithVersion("v1"))
	err := own.Get(ctx, client.ObjectKey{Name: name}, &crd)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("getting CustomResourceDefinition %s, without which nothing is pruned: %w", name, err)
	}
	return crd.DeletionTimestamp != nil, nil
}
