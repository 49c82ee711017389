package apply

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/apiproblem"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// A plan that gets another name in Git is another BatchRelease in the cluster.
// The release goes on all the same, because the new BatchRelease takes over from
// the old one in this order:
//
//  1. It is applied with the spec.commit of the old one. The old one counts for
//     rollout, since it is older; rollout says AnotherPlan on the new one.
//  2. The records of revisions get the new one as an owner, and the old one's
//     status is written into its status.
//  3. The old one is deleted, if it is still at the version that was copied. If it
//     is not, rollout or a user has decided something in between: step 2 again.
//
// A controller that dies between two of these writes leaves both BatchReleases,
// and the next sync begins again at step 1. Nothing is lost while both are there:
// the old one counts until it is deleted.

// maxReplace is how often the status is copied in one sync because the old
// BatchRelease has changed.
const maxReplace = 10

// Replace lets one BatchRelease take over from another, and deletes that one.
// It returns false if the successor is not in the cluster: the old one then
// stays, or its Deployment would be without a plan.
func (o Takeover) Replace(ctx context.Context, old inventory.Entry, successor types.NamespacedName) (bool, error) {
	var done bool
	var err error
	for range maxReplace {
		done, err = o.tryReplace(ctx, old, successor)
		if !apierrors.IsConflict(err) {
			break
		}
	}
	if apierrors.IsConflict(err) {
		return false, err
	}
	if err != nil {
		return false, apiproblem.Or(apiproblem.Of(v1alpha1.ReasonPruneFailed, plan.Object{Unstructured: inventory.Named(old)}, o.Applier.Source, err), err)
	}
	return done, nil
}

func (o Takeover) tryReplace(ctx context.Context, e inventory.Entry, name types.NamespacedName) (bool, error) {
	var old, successor v1alpha1.BatchRelease
	err := o.Own.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: e.Name}, &old)
	if apierrors.IsNotFound(err) || err == nil && !inventory.IsOwned(&old, o.Applier.Source) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("getting %s: %w", e, err)
	}
	err = o.Own.Get(ctx, name, &successor)
	if apierrors.IsNotFound(err) || err == nil && successor.DeletionTimestamp != nil {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("getting BatchRelease %s: %w", name, err)
	}
	if takesOver(&successor, &old) {
		if err := o.adoptRecords(ctx, &old, &successor); err != nil {
			return false, err
		}
		if err := o.copyStatus(ctx, &old, &successor); err != nil {
			return false, err
		}
	}
	err = client.IgnoreNotFound(inventory.DeleteUnchanged(ctx, o.Applier.Client, &old))
	return err == nil, err
}

// copyStatus writes the status of one BatchRelease into that of another, if it is
// not there yet. The sentences that rollout says of the successor stay as they
// are: were they copied, gitsync and rollout would write in turn. The generation
// is none, so that no one takes the status for one about the successor's spec. A
// rollback that a user has asked for in an annotation is asked of the successor.
func (o Takeover) copyStatus(ctx context.Context, old, successor *v1alpha1.BatchRelease) error {
	if asks := old.Annotations[v1alpha1.AnnotationRollback]; asks != "" && successor.Annotations[v1alpha1.AnnotationRollback] != asks {
		before := successor.DeepCopy()
		metav1.SetMetaDataAnnotation(&successor.ObjectMeta, v1alpha1.AnnotationRollback, asks)
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := o.Status.Patch(ctx, successor, patch, client.FieldOwner(v1alpha1.ManagerGitSync)); err != nil {
			return fmt.Errorf("annotating BatchRelease %s: %w", plan.ReleaseName(successor), err)
		}
	}
	status, said := *old.Status.DeepCopy(), &successor.Status
	status.ObservedGeneration, status.Conditions = said.ObservedGeneration, said.Conditions
	status.Reason, status.Message, status.LastUpdateTime = said.Reason, said.Message, said.LastUpdateTime
	if equality.Semantic.DeepEqual(successor.Status, status) {
		return nil
	}
	status.ObservedGeneration = 0
	successor.Status = status
	if err := o.Status.Status().Update(ctx, successor, client.FieldOwner(v1alpha1.ManagerGitSync), client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
		return fmt.Errorf("writing the status of BatchRelease %s: %w", plan.ReleaseName(successor), plan.ExplainUnknownField(err))
	}
	return nil
}

// adoptRecords makes a BatchRelease an owner of the records that another one owns.
// Without it, a Deployment that is deleted later would take them with it.
func (o Takeover) adoptRecords(ctx context.Context, old, successor *v1alpha1.BatchRelease) error {
	records, err := Records(ctx, o.Own, old.Namespace, old.UID)
	if err != nil {
		return err
	}
	for i := range records {
		c := &records[i]
		if isOwnedBy(c, successor.UID) {
			continue
		}
		before := c.DeepCopy()
		c.OwnerReferences = append(c.OwnerReferences, metav1.OwnerReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: inventory.ReleaseKind.Kind, Name: successor.Name, UID: successor.UID,
		})
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := o.Status.Patch(ctx, c, patch, client.FieldOwner(v1alpha1.ManagerGitSync)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("setting the owners of ControllerRevision %s/%s: %w", c.Namespace, c.Name, err)
		}
	}
	return nil
}
