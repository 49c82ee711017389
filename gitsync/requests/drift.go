package requests

import (
	"context"
	"maps"
	"slices"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tranche-dev/tranche/gitsync/fieldmanager"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// DeploymentChanged passes changes of a Deployment that may be drift, and its end.
var DeploymentChanged = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
			!maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) ||
			!maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations())
	},
}

// Drifted maps a Deployment with a plan to the source that applies it, where it
// is no longer as that says. Template, strategy and paused are rollout's to watch.
func (w *Watches) Drifted(ctx context.Context, o client.Object) []reconcile.Request {
	d, ok := o.(*appsv1.Deployment)
	if !ok {
		return nil
	}
	var plans v1alpha1.BatchReleaseList
	if err := w.Client.List(ctx, &plans, client.InNamespace(d.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Mapping a Deployment to its source")
		return nil
	}
	var requests []reconcile.Request
	for i := range plans.Items {
		if plans.Items[i].Spec.WorkloadRef.Name != d.Name {
			continue
		}
		// The event of a deleted object has its last state.
		gone := apierrors.IsNotFound(w.Client.Get(ctx, client.ObjectKeyFromObject(d), &appsv1.Deployment{}))
		for _, request := range w.SourceOf(ctx, &plans.Items[i]) {
			if gone || w.contradicts(request.NamespacedName, d) {
				requests = append(requests, request)
			}
		}
	}
	return requests
}

// contradicts reports whether a source says something else of a Deployment. While a
// commit is being applied it says what the one before did: one sync too many.
func (w *Watches) contradicts(source types.NamespacedName, d *appsv1.Deployment) bool {
	applied, autoscaled := w.Applied(source)
	if applied == nil {
		return false // the first sync is still to come
	}
	for i := range applied.Releases {
		manifest := applied.Releases[i].Deployment
		if manifest.GetNamespace() != d.Namespace || manifest.GetName() != d.Name {
			continue
		}
		live, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
		if err != nil {
			return true
		}
		apart := fieldmanager.RolloutFields
		if autoscaled[inventory.Of(manifest.Unstructured).ID()] {
			apart = append(slices.Clone(apart), "replicas")
		}
		identity := []string{"namespace", "name", "creationTimestamp"}
		return !fieldmanager.Contains(live["metadata"], fieldmanager.Without(manifest.Object["metadata"], identity)) ||
			!fieldmanager.Contains(live["spec"], fieldmanager.Without(manifest.Object["spec"], apart))
	}
	return false
}
