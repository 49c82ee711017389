package rollout

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// unchanged asks the API server whether a BatchRelease is still the one that a round was
// decided on. A write to the Deployment or to a ReplicaSet is conditional on that object
// alone. The cache may not have what another leader has decided meanwhile. With a new
// ReplicaSet and an old BatchRelease, a round scales a step back.
//
// It is enough to ask once in a round. Every decision is in the status before anything is
// moved by it, so two leaders with the same BatchRelease lead to the same sizes. The
// resourceVersion of each object lets only one of them write.
func (r *reconciler) unchanged(ctx context.Context, br *v1alpha1.BatchRelease) error {
	var live metav1.PartialObjectMetadata
	live.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("BatchRelease"))
	err := client.IgnoreNotFound(r.reader.Get(ctx, client.ObjectKeyFromObject(br), &live))
	if err != nil {
		return fmt.Errorf("reading BatchRelease %s/%s before a write: %w", br.Namespace, br.Name, err)
	}
	if live.UID != br.UID || live.ResourceVersion != br.ResourceVersion {
		return fmt.Errorf("BatchRelease %s/%s was changed or deleted since it was observed: %w", br.Namespace, br.Name, errLookAgain)
	}
	return nil
}

// ungoverned asks the API server whether a Deployment still has no plan, before it is
// handed back for that. Another leader may have begun a release of a plan that the cache
// does not have.
func (a *abandonment) ungoverned(ctx context.Context, deployment types.NamespacedName) error {
	var plans v1alpha1.BatchReleaseList
	err := a.reader.List(ctx, &plans, client.InNamespace(deployment.Namespace))
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil // the CRD is gone, and all plans with it
	}
	if err != nil {
		return fmt.Errorf("listing the plans of Deployment %s before it is handed back: %w", deployment, err)
	}
	for i := range plans.Items {
		if br := &plans.Items[i]; br.Spec.WorkloadRef.Name == deployment.Name && (!isGone(br) || returns(*br)) {
			return fmt.Errorf("Deployment %s has the plan %s: %w", deployment, plans.Items[i].Name, errLookAgain)
		}
	}
	return nil
}
