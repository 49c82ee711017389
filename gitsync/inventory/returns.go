package inventory

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// A plan may come back to the branch while a finalizer still keeps its BatchRelease, which
// is being deleted. rollout hands the Deployment of such a plan back, and the native
// controller then brings all pods to what Git says, past the gates. So gitsync marks the
// BatchRelease with v1alpha1.AnnotationReturns. The Deployment stays held until the
// BatchRelease is gone and created again. The mark goes when the plan leaves the branch
// once more.

// MarkReturn marks a BatchRelease that is being deleted: the commit has its plan again.
func MarkReturn(ctx context.Context, c client.Client, o client.Object, commit string) error {
	if o.GetAnnotations()[v1alpha1.AnnotationReturns] != "" {
		return nil
	}
	return annotateReturn(ctx, c, o, commit)
}

// UnmarkReturn takes the mark off an object of a source, where it has one.
func UnmarkReturn(ctx context.Context, c client.Client, gs *v1alpha1.GitSource, o client.Object) error {
	if u, ok := o.(*unstructured.Unstructured); ok && u == nil || o.GetAnnotations()[v1alpha1.AnnotationReturns] == "" || !IsOwned(o, gs) {
		return nil
	}
	return annotateReturn(ctx, c, o, nil)
}

// annotateReturn sets the mark, or removes it where the commit is nil.
func annotateReturn(ctx context.Context, c client.Client, o client.Object, commit any) error {
	annotations := map[string]any{v1alpha1.AnnotationReturns: commit}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": o.GetUID(), "annotations": annotations}})
	if err != nil {
		return fmt.Errorf("encoding an annotation: %w", err)
	}
	about := Named(Entry{v1alpha1.GroupVersion.WithKind("BatchRelease"), o.GetNamespace(), o.GetName()})
	err = client.IgnoreNotFound(c.Patch(ctx, about, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(v1alpha1.ManagerGitSync)))
	if apierrors.IsConflict(err) { // another one of its name is there
		return nil
	}
	return err
}
