package rollout

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/failures"
	"github.com/tranche-dev/tranche/rollout/fromgit"
)

// confirm finds out whether a BatchRelease that is labelled as one of a GitSource says what
// Git says. A restored one says what Git said at the time of the back-up. It is confirmed
// once the GitSource has written it. It stays that until it is another object. The API server is
// asked if the cache has not seen that.
func (r *reconciler) confirm(ctx context.Context, br *v1alpha1.BatchRelease, o *engine.Observed) error {
	if br.Labels[v1alpha1.LabelSource] == "" || r.fromGit.Has(br) {
		return nil
	}
	var live metav1.PartialObjectMetadata // the cache has no managedFields
	live.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("BatchRelease"))
	if err := r.reader.Get(ctx, client.ObjectKeyFromObject(br), &live); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading who has written BatchRelease %s/%s: %w", br.Namespace, br.Name, err)
	}
	if live.UID != br.UID || live.ResourceVersion != br.ResourceVersion { // the cache may have what was restored
		return fmt.Errorf("BatchRelease %s/%s was changed or deleted since it was observed: %w", br.Namespace, br.Name, failures.ErrChanged)
	}
	if fromgit.Wrote(&live) {
		r.fromGit.Add(br)
		return nil
	}
	var err error
	o.Unconfirmed, o.SourceGone, err = r.whyUnconfirmed(ctx, br)
	return err
}

// whyUnconfirmed says what is waited for, and what to do if that does not come by itself.
func (r *reconciler) whyUnconfirmed(ctx context.Context, br *v1alpha1.BatchRelease) (message string, gone bool, err error) {
	key := types.NamespacedName{Namespace: cmp.Or(br.Labels[v1alpha1.LabelSourceNamespace], br.Namespace),
		Name: br.Labels[v1alpha1.LabelSource]}
	message = fmt.Sprintf("GitSource %s has not written this BatchRelease since it was created, as a restore creates it; "+
		"nothing begins and nothing moves until then", key)
	var gs v1alpha1.GitSource
	if err := r.reader.Get(ctx, key, &gs); apierrors.IsNotFound(err) {
		return fmt.Sprintf("%s. There is no GitSource %s: create it; or take off the labels %s and %s, after which "+
			"spec.template is released as it is",
			message, key, v1alpha1.LabelSource, v1alpha1.LabelSourceNamespace), true, nil
	} else if err != nil {
		return "", false, fmt.Errorf("reading GitSource %s of BatchRelease %s/%s: %w", key, br.Namespace, br.Name, err)
	}
	ready := meta.FindStatusCondition(gs.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case br.Annotations[v1alpha1.AnnotationReconcile] == v1alpha1.AnnotationReconcileDisabled:
		message += ". Annotation " + v1alpha1.AnnotationReconcile + " keeps the GitSource from it: take it off"
	case gs.Spec.Suspend:
		message += ". The GitSource is suspended"
	case ready != nil && ready.Status != metav1.ConditionTrue:
		message += fmt.Sprintf(". The GitSource is not ready: %s: %s", ready.Reason, ready.Message)
	}
	return message, false, nil
}
