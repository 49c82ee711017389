package gitsync

import (
	"context"
	"maps"
	"slices"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
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

// mayDrift passes changes of a Deployment that may be drift, and its end.
var mayDrift = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
			!maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) || !maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations())
	},
}

// drifted maps a Deployment with a plan to the source that applies it, where it
// is no longer as that says. Template, strategy and paused are rollout's to watch.
func (r *reconciler) drifted(ctx context.Context, o client.Object) []reconcile.Request {
	d, ok := o.(*appsv1.Deployment)
	if !ok {
		return nil
	}
	var plans v1alpha1.BatchReleaseList
	if err := r.status.List(ctx, &plans, client.InNamespace(d.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "mapping a Deployment to its source")
		return nil
	}
	var requests []reconcile.Request
	for i := range plans.Items {
		if plans.Items[i].Spec.WorkloadRef.Name != d.Name {
			continue
		}
		// The event of a deleted object has its last state.
		gone := apierrors.IsNotFound(r.status.Get(ctx, client.ObjectKeyFromObject(d), &appsv1.Deployment{}))
		for _, request := range r.sourceOf(ctx, &plans.Items[i]) {
			if gone || r.contradicts(request.NamespacedName, d) {
				requests = append(requests, request)
			}
		}
	}
	return requests
}

// contradicts reports whether a source says something else of a Deployment. While a
// commit is being applied it says what the one before did: one sync too many.
func (r *reconciler) contradicts(source types.NamespacedName, d *appsv1.Deployment) bool {
	keep := r.recall(source)
	if keep.applied == nil {
		return false // the first sync is still to come
	}
	for i := range keep.applied.Releases {
		manifest := keep.applied.Releases[i].Deployment
		if manifest.GetNamespace() != d.Namespace || manifest.GetName() != d.Name {
			continue
		}
		live, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
		if err != nil {
			return true
		}
		apart := fieldmanager.RolloutFields
		if keep.autoscaled[inventory.Of(manifest.Unstructured).ID()] {
			apart = append(slices.Clone(apart), "replicas")
		}
		return !says(live["metadata"], part(manifest.Object["metadata"], []string{"namespace", "name", "creationTimestamp"})) ||
			!says(live["spec"], part(manifest.Object["spec"], apart))
	}
	return false
}

// part is an object without some of its fields.
func part(object any, without []string) any {
	m, ok := object.(map[string]any)
	if !ok {
		return object
	}
	m = maps.Clone(m)
	for _, field := range without {
		delete(m, field)
	}
	return m
}

// says reports whether an object has all that a manifest says.
func says(live, manifest any) bool {
	m, ok := manifest.(map[string]any)
	if !ok {
		return manifest == nil || equality.Semantic.DeepEqual(live, manifest)
	}
	l, ok := live.(map[string]any)
	if !ok {
		return len(m) == 0
	}
	for k, v := range m {
		if !says(l[k], v) {
			return false
		}
	}
	return true
}
