package fieldmanager

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
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
		set, err := setOf(u, e)
		if err != nil {
			return nil, err
		}
		all = all.Union(set)
	}
	return all, nil
}

// setOf returns the fields of an entry of an object.
func setOf(u *unstructured.Unstructured, e metav1.ManagedFieldsEntry) (*fieldpath.Set, error) {
	set := &fieldpath.Set{}
	if err := set.FromJSON(e.FieldsV1.GetRawReader()); err != nil {
		return nil, fmt.Errorf("reading the managed fields of %s: %w", inventory.Of(u), err)
	}
	return set, nil
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

// HandOver moves fields of the spec from gitsync to another manager, so that gitsync's next apply,
// which is without them, removes nothing. To rollout it moves the label of a hold, too. Callers do
// so whenever gitsync owns such fields: after the first install, or when a plan or an autoscaler was
// added later. After a crash, the next sync does it. HandOver returns the object as it is then.
//
// HandOver writes who manages the fields, and no field. So it cannot bring back a template that
// was replaced since live was read, which would be a release without a commit. Its write is
// conditional on the entries of the managers, and not on the version: a status that is written
// meanwhile does not matter. If an entry has changed, HandOver reads the object again.
func HandOver(
	ctx context.Context, c client.Client, live *unstructured.Unstructured, manager string, names []string,
) (*unstructured.Unstructured, error) {
	live, err := rewrite(ctx, c, live, func(u *unstructured.Unstructured) (client.Patch, error) { return handOver(u, manager, names) })
	if err != nil {
		return nil, fmt.Errorf("handing %v over to %s: %w", names, manager, err)
	}
	return live, nil
}

// rewrite writes who manages the fields of an object, until patch returns nil for what was read.
func rewrite(
	ctx context.Context, c client.Client, live *unstructured.Unstructured, patch func(*unstructured.Unstructured) (client.Patch, error),
) (*unstructured.Unstructured, error) {
	e, live := inventory.Of(live), live.DeepCopy()
	last := errors.New("its managed fields stay as they are")
	for range rewriteTries {
		p, err := patch(live)
		if err != nil || p == nil {
			return live, err
		}
		if err = c.Patch(ctx, live, p, client.FieldOwner(v1alpha1.ManagerGitSync)); err == nil {
			continue // there may be more, as by another version of the API
		}
		if last = err; !apierrors.IsInvalid(err) && !apierrors.IsConflict(err) {
			break
		}
		if err := c.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: e.Name}, live); err != nil {
			return nil, fmt.Errorf("getting %s: %w", e, err)
		}
	}
	return nil, fmt.Errorf("writing the managed fields of %s: %w", e, last)
}

// rewriteTries is how often the managed fields of an object are written at most.
const rewriteTries = 5

// handOver returns the patch by which an entry of gitsync loses fields of the spec to a manager.
// It is nil if gitsync has none of them.
func handOver(u *unstructured.Unstructured, manager string, names []string) (client.Patch, error) {
	entries := u.GetManagedFields()
	for i, e := range entries {
		if !isApplied(e, v1alpha1.ManagerGitSync) {
			continue
		}
		set, err := setOf(u, e)
		if err != nil {
			return nil, err
		}
		moved := inSpec(set, names)
		if manager == v1alpha1.ManagerRollout && set.Has(heldLabel) {
			moved.Insert(heldLabel)
		}
		if moved.Empty() {
			continue
		}
		patch := entryPatch{of: u}
		patch.replace(i, e, set.Difference(moved))
		j := slices.IndexFunc(entries, func(to metav1.ManagedFieldsEntry) bool {
			return isApplied(to, manager) && to.APIVersion == e.APIVersion
		})
		if j < 0 {
			e.Manager = manager
			patch.add("/metadata/managedFields/-", "add", e, moved)
			return patch.raw()
		}
		theirs, err := setOf(u, entries[j])
		if err != nil {
			return nil, err
		}
		patch.replace(j, entries[j], theirs.Union(moved))
		return patch.raw()
	}
	return nil, nil
}

// heldLabel is the label of a hold. A user who may patch a Deployment can name gitsync as its
// manager, and gitsync's next apply would take it off.
var heldLabel = fieldpath.MakePathOrDie("metadata", "labels", v1alpha1.LabelHeld)

// isApplied reports whether an entry has the fields that a manager has applied.
func isApplied(e metav1.ManagedFieldsEntry, manager string) bool {
	return e.Manager == manager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == "" && e.FieldsV1 != nil
}

// inSpec returns those of a set that are, or are in, the named fields of the spec.
func inSpec(set *fieldpath.Set, names []string) *fieldpath.Set {
	found := &fieldpath.Set{}
	set.Iterate(func(p fieldpath.Path) {
		if len(p) > 1 && p[0].Equals(Name("spec")) && p[1].FieldName != nil && slices.Contains(names, *p[1].FieldName) {
			found.Insert(p.Copy())
		}
	})
	return found
}

// entryPatch is a JSON patch of the managed fields of an object.
type entryPatch struct {
	of         *unstructured.Unstructured
	operations []map[string]any
	err        error
}

// replace gives an entry other fields, if it is as it was read.
func (p *entryPatch) replace(i int, e metav1.ManagedFieldsEntry, set *fieldpath.Set) {
	path := fmt.Sprintf("/metadata/managedFields/%d", i)
	p.operations = append(p.operations, map[string]any{"op": "test", "path": path, "value": e})
	p.add(path, "replace", e, set)
}

// add writes an entry with these fields.
func (p *entryPatch) add(path, op string, e metav1.ManagedFieldsEntry, set *fieldpath.Set) {
	raw, err := set.ToJSON()
	p.err = cmp.Or(p.err, err)
	e.FieldsV1 = metav1.NewFieldsV1(string(raw))
	p.operations = append(p.operations, map[string]any{"op": op, "path": path, "value": e})
}

func (p *entryPatch) raw() (client.Patch, error) {
	raw, err := json.Marshal(p.operations)
	if err = cmp.Or(p.err, err); err != nil {
		return nil, fmt.Errorf("encoding the managed fields of %s: %w", inventory.Of(p.of), err)
	}
	return client.RawPatch(types.JSONPatchType, raw), nil
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
