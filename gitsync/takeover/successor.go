package takeover

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/apiproblem"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/records"
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

// Successor lets one BatchRelease take over from another.
type Successor struct {
	Source *v1alpha1.GitSource
	// Client writes as the account that the GitSource names. Own reads, and Status writes the
	// status, as the controller.
	Client client.Client
	Own    client.Reader
	Status client.Client
}

// maxReplace is how often the status is copied in one sync because the old
// BatchRelease has changed.
const maxReplace = 10

// Replace lets one BatchRelease take over from another, and deletes that one.
// It returns false if the successor is not in the cluster: the old one then
// stays, or its Deployment would be without a plan.
func (s Successor) Replace(ctx context.Context, old inventory.Entry, successor types.NamespacedName) (bool, error) {
	var done bool
	var err error
	for range maxReplace {
		done, err = s.tryReplace(ctx, old, successor)
		if !apierrors.IsConflict(err) {
			break
		}
	}
	if apierrors.IsConflict(err) {
		return false, err
	}
	if err != nil {
		return false,
			apiproblem.Or(apiproblem.Of(v1alpha1.ReasonPruneFailed, plan.Object{Unstructured: inventory.Named(old)}, s.Source, err), err)
	}
	return done, nil
}

func (s Successor) tryReplace(ctx context.Context, e inventory.Entry, name types.NamespacedName) (bool, error) {
	var old, successor v1alpha1.BatchRelease
	err := s.Own.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: e.Name}, &old)
	if apierrors.IsNotFound(err) || err == nil && !inventory.IsOwned(&old, s.Source) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("getting %s: %w", e, err)
	}
	err = s.Own.Get(ctx, name, &successor)
	if apierrors.IsNotFound(err) || err == nil && successor.DeletionTimestamp != nil {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("getting BatchRelease %s: %w", name, err)
	}
	if TakesOver(&successor, &old) {
		if err := s.adoptRecords(ctx, &old, &successor); err != nil {
			return false, err
		}
		if err := s.copyStatus(ctx, &old, &successor); err != nil {
			return false, err
		}
	}
	err = client.IgnoreNotFound(inventory.DeleteUnchanged(ctx, s.Client, &old))
	return err == nil, err
}

// copyStatus writes the status of one BatchRelease into that of another, if it is
// not there yet. The sentences that rollout says of the successor stay as they
// are: were they copied, gitsync and rollout would write in turn. The generation
// is none, so that no one takes the status for one about the successor's spec. A
// rollback that a user has asked for in an annotation is asked of the successor.
func (s Successor) copyStatus(ctx context.Context, old, successor *v1alpha1.BatchRelease) error {
	if asks := old.Annotations[v1alpha1.AnnotationRollback]; asks != "" && successor.Annotations[v1alpha1.AnnotationRollback] != asks {
		before := successor.DeepCopy()
		metav1.SetMetaDataAnnotation(&successor.ObjectMeta, v1alpha1.AnnotationRollback, asks)
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := s.Status.Patch(ctx, successor, patch, client.FieldOwner(v1alpha1.ManagerGitSync)); err != nil {
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
	if err := s.Status.Status().Update(ctx, successor, client.FieldOwner(v1alpha1.ManagerGitSync),
		client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
		return fmt.Errorf("writing the status of BatchRelease %s: %w", plan.ReleaseName(successor), plan.ExplainUnknownField(err))
	}
	return nil
}

// adoptRecords makes a BatchRelease an owner of the records that another one owns.
// Without it, a Deployment that is deleted later would take them with it.
func (s Successor) adoptRecords(ctx context.Context, old, successor *v1alpha1.BatchRelease) error {
	records, err := Records(ctx, s.Own, old.Namespace, old.UID)
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
		if err := s.Status.Patch(ctx, c, patch, client.FieldOwner(v1alpha1.ManagerGitSync)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("setting the owners of ControllerRevision %s/%s: %w", c.Namespace, c.Name, err)
		}
	}
	return nil
}

// TakesOver reports whether a BatchRelease is to have the status of another one
// for the same Deployment. It is not where it governs the Deployment already: a
// plan that gets its old name back before the other one is deleted. The
// age of two that were created in one second is the same. If the status of one is a copy,
// which no generation has, it governs nothing yet.
func TakesOver(successor, old *v1alpha1.BatchRelease) bool {
	tie := old.CreationTimestamp.Equal(&successor.CreationTimestamp)
	return plan.ComparePlans(old, successor) < 0 || successor.Status.Phase == "" || tie && successor.Status.ObservedGeneration == 0
}

// Records returns the ControllerRevisions of Tranche that one of the owners owns.
func Records(ctx context.Context, c client.Reader, namespace string, owners ...types.UID) ([]appsv1.ControllerRevision, error) {
	var list appsv1.ControllerRevisionList
	if err := c.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: records.Selector}); err != nil {
		return nil, fmt.Errorf("listing the ControllerRevisions of %s: %w", namespace, err)
	}
	return slices.DeleteFunc(list.Items, func(c appsv1.ControllerRevision) bool { return !isOwnedBy(&c, owners...) }), nil
}

// isOwnedBy reports whether one of the owners owns an object.
func isOwnedBy(o client.Object, owners ...types.UID) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return slices.Contains(owners, r.UID) })
}
