package writeback

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Unchanged returns a function that asks the API server whether the GitSource is still the
// one that a push was decided on. A push is conditional on the branches. They do not move
// where a user suspends the source, turns write-back off, or sets approvals.signers. A leader
// that was suspended before its push may not know of it. The error is a conflict then.
//
// The decisions themselves need no such check. One that does not count any more is followed
// by a commit: of another release, or of the rollback.
func (w *Input) Unchanged(ctx context.Context) func() error {
	return func() error {
		var live metav1.PartialObjectMetadata
		live.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("GitSource"))
		key := client.ObjectKeyFromObject(w.Source)
		if err := client.IgnoreNotFound(w.Own.Get(ctx, key, &live)); err != nil {
			return fmt.Errorf("reading GitSource %s before a push: %w", key, err)
		}
		if live.UID == w.Source.UID && live.Generation == w.Source.Generation && live.DeletionTimestamp == nil {
			return nil
		}
		resource := v1alpha1.GroupVersion.WithResource("gitsources").GroupResource()
		return fmt.Errorf("%w: %w", gitserver.ErrOutdated, apierrors.NewConflict(resource, key.Name, gitserver.ErrOutdated))
	}
}
