package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Get returns an object of the cluster, or nil if the object or its kind does not exist. The
// reader is one without a cache.
func Get(ctx context.Context, c client.Reader, e Entry) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(e.GVK)
	err := c.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: e.Name}, u)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("getting %s: %w", e, err)
	}
	return u, nil
}

// Delete deletes the object that u was read from. It returns a conflict if a new object has
// its name: that one belongs to another user.
func Delete(ctx context.Context, c client.Client, u *unstructured.Unstructured) error {
	uid := u.GetUID()
	return deleteIf(ctx, c, u, client.Preconditions{UID: &uid})
}

// DeleteUnchanged deletes the object that o was read from, at that version. It returns a
// conflict if the object has changed: a controller may have adopted it.
//
// The API server removes its own finalizers, such as orphan, from an object that is deleted in
// the background. It then compares the version, which that has changed, and answers with a
// conflict each time. So DeleteUnchanged removes these finalizers itself, at the version that
// was read.
func DeleteUnchanged(ctx context.Context, c client.Client, o client.Object) error {
	if err := dropServersOwn(ctx, c, o); err != nil {
		return err
	}
	uid, version := o.GetUID(), o.GetResourceVersion()
	return deleteIf(ctx, c, o, client.Preconditions{UID: &uid, ResourceVersion: &version})
}

func dropServersOwn(ctx context.Context, c client.Client, o client.Object) error {
	finalizers := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), plan.IsServersFinalizer)
	if len(finalizers) == len(o.GetFinalizers()) || o.GetDeletionTimestamp() != nil {
		return nil
	}
	patch := client.MergeFromWithOptions(o.DeepCopyObject().(client.Object), client.MergeFromWithOptimisticLock{})
	o.SetFinalizers(finalizers)
	if err := c.Patch(ctx, o, patch, client.FieldOwner(v1alpha1.ManagerGitSync)); err != nil {
		return fmt.Errorf("removing the finalizers of %s: %w", named(c, o), err)
	}
	return nil
}

func deleteIf(ctx context.Context, c client.Client, o client.Object, is client.Preconditions) error {
	if *is.UID == "" {
		return errors.New("the object has no UID")
	}
	err := c.Delete(ctx, o, is, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err != nil {
		return fmt.Errorf("deleting %s: %w", named(c, o), err)
	}
	return nil
}

// named returns the entry of an object of any type.
func named(c client.Client, o client.Object) Entry {
	gvk, _ := c.GroupVersionKindFor(o) // a kind without one was not read either
	return Entry{gvk, o.GetNamespace(), o.GetName()}
}

// Named returns an object that has only kind, namespace and name.
func Named(e Entry) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(e.GVK)
	u.SetNamespace(e.Namespace)
	u.SetName(e.Name)
	return u
}

// GetServed returns an object of the cluster, or nil, in the version in which the cluster
// serves its kind now.
func GetServed(ctx context.Context, c client.Client, e Entry) (*unstructured.Unstructured, error) {
	if m, err := c.RESTMapper().RESTMapping(e.GVK.GroupKind()); err == nil {
		e.GVK.Version = m.GroupVersionKind.Version
	}
	return Get(ctx, c, e)
}
