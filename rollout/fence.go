package rollout

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/failures"
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
		return fmt.Errorf("BatchRelease %s/%s was changed or deleted since it was observed: %w", br.Namespace, br.Name, failures.ErrChanged)
	}
	return nil
}
