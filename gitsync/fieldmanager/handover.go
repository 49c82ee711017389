package fieldmanager

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// RolloutFields are the fields of a governed Deployment's spec that rollout
// writes. Callers do not change the list.
var RolloutFields = []string{"template", "strategy", "paused"}

// ManagerReplicas takes over spec.replicas when the field leaves Git, or an autoscaler is
// added. Without it, the field would have no manager then, and the API server would set it
// to 1.
const ManagerReplicas = "tranche-replicas-handover"

// Fields returns the fields that a manager has of an object, by apply or, with anyOperation,
// by any operation on the object itself.
func Fields(u *unstructured.Unstructured, manager string, anyOperation bool) (*fieldpath.Set, error) {
	all := &fieldpath.Set{}
	for _, e := range u.GetManagedFields() {
		if e.Manager != manager || e.Subresource != "" || e.FieldsV1 == nil {
			continue
		}
		if e.Operation != metav1.ManagedFieldsOperationApply && !anyOperation {
			continue
		}
		set := &fieldpath.Set{}
		if err := set.FromJSON(e.FieldsV1.GetRawReader()); err != nil {
			return nil, fmt.Errorf("reading the managed fields of %s: %w", inventory.Of(u), err)
		}
		all = all.Union(set)
	}
	return all, nil
}

// AppliedSpec returns those of the named fields of the spec that gitsync has applied.
func AppliedSpec(u *unstructured.Unstructured, names ...string) ([]string, error) {
	set, err := Fields(u, v1alpha1.ManagerGitSync, false)
	if err != nil {
		return nil, err
	}
	spec := set.WithPrefix(Name("spec"))
	var owned []string
	for _, name := range names {
		if spec.Members.Has(Name(name)) || !spec.WithPrefix(Name(name)).Empty() {
			owned = append(owned, name)
		}
	}
	return owned, nil
}

// Name returns the element of a path that is a field.
func Name(name string) fieldpath.PathElement { return fieldpath.PathElement{FieldName: &name} }

// HandOver gives another manager fields of the spec with the values that they have, so that
// gitsync's next apply, which is without them, removes nothing. Callers do so whenever gitsync
// owns such fields: after the first install, or when a plan or an autoscaler was added later.
// After a crash, the next sync does it.
//
// HandOver takes the values from live. Its write is conditional on their version: a stale
// template applied here would be a release without a commit. If another write comes in between,
// such as the Deployment's first status, HandOver reads them again. It returns what it has
// applied.
func HandOver(
	ctx context.Context, c client.Client, live *unstructured.Unstructured, manager string, names []string,
) (handed *unstructured.Unstructured, err error) {
	e := inventory.Of(live)
	err = retry.RetryOnConflict(retry.DefaultRetry, func() (err error) {
		if live == nil {
			live = &unstructured.Unstructured{}
			live.SetGroupVersionKind(e.GVK)
			if err := c.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: e.Name}, live); err != nil {
				return err
			}
		}
		handed, err = handOverOnce(ctx, c, live, manager, names)
		live = nil
		return err
	})
	return handed, err
}

func handOverOnce(
	ctx context.Context, c client.Client, live *unstructured.Unstructured, manager string, names []string,
) (*unstructured.Unstructured, error) {
	e := inventory.Of(live)
	spec := map[string]any{}
	for _, name := range names {
		if v, ok, _ := unstructured.NestedFieldCopy(live.Object, "spec", name); ok && v != nil {
			spec[name] = v
		}
	}
	WithoutNulls(spec)
	body := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	body.SetGroupVersionKind(e.GVK)
	body.SetNamespace(e.Namespace)
	body.SetName(e.Name)
	body.SetResourceVersion(live.GetResourceVersion())
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(body), client.FieldOwner(manager), client.ForceOwnership); err != nil {
		return nil, fmt.Errorf("handing %v of %s over to %s: %w", names, e, manager, err)
	}
	return body, nil
}

// WithoutNulls removes members without a value, which an apply would count as set.
func WithoutNulls(m map[string]any) {
	for k, v := range m {
		switch v := v.(type) {
		case nil:
			delete(m, k)
		case map[string]any:
			WithoutNulls(v)
		}
	}
}

// HasRolloutFields reports whether rollout has written to an object.
func HasRolloutFields(u *unstructured.Unstructured) bool {
	return slices.ContainsFunc(u.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == v1alpha1.ManagerRollout && e.Subresource == ""
	})
}

// TakeBack makes gitsync the manager of the fields that rollout wrote, once no plan
// governs the Deployment any more. Gitsync's next apply, of the full manifest,
// then also removes what the manifest does not have.
func TakeBack(ctx context.Context, c client.Client, live *unstructured.Unstructured) error {
	managed, err := takenBack(live)
	if err != nil {
		return err
	}
	patch, err := json.Marshal([]map[string]any{
		{"op": "replace", "path": "/metadata/managedFields", "value": managed},
		{"op": "replace", "path": "/metadata/resourceVersion", "value": live.GetResourceVersion()},
	})
	if err != nil {
		return fmt.Errorf("encoding the managed fields of %s: %w", inventory.Of(live), err)
	}
	if err := c.Patch(ctx, live, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(v1alpha1.ManagerGitSync)); err != nil {
		return fmt.Errorf("taking %s back from %s: %w", inventory.Of(live), v1alpha1.ManagerRollout, err)
	}
	return nil
}

// takenBack returns the managed fields with rollout's in gitsync's entry.
func takenBack(live *unstructured.Unstructured) ([]metav1.ManagedFieldsEntry, error) {
	ours, err := Fields(live, v1alpha1.ManagerGitSync, false)
	if err != nil {
		return nil, err
	}
	theirs, err := Fields(live, v1alpha1.ManagerRollout, true)
	if err != nil {
		return nil, err
	}
	raw, err := ours.Union(theirs).ToJSON()
	if err != nil {
		return nil, fmt.Errorf("encoding the managed fields of %s: %w", inventory.Of(live), err)
	}
	managed := []metav1.ManagedFieldsEntry{{
		Manager: v1alpha1.ManagerGitSync, Operation: metav1.ManagedFieldsOperationApply,
		APIVersion: live.GetAPIVersion(), FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(raw)),
	}}
	for _, e := range live.GetManagedFields() {
		ours := e.Manager == v1alpha1.ManagerGitSync && e.Operation == metav1.ManagedFieldsOperationApply
		if e.Subresource != "" || !ours && e.Manager != v1alpha1.ManagerRollout {
			managed = append(managed, e)
		}
	}
	return managed, nil
}

// OwnsReplicas reports whether gitsync has applied spec.replicas of an object, which may be nil.
// If the field leaves Git, it would leave the object and come back as 1, were it not handed over.
func OwnsReplicas(live *unstructured.Unstructured) bool {
	if live == nil {
		return false
	}
	owned, err := AppliedSpec(live, "replicas")
	return err == nil && len(owned) > 0
}
