// Package managedfields gives back what the controller owns in metadata.managedFields.
package managedfields

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/jsonpatch"
)

// Release takes the entries of field manager tranche-rollout out of
// metadata.managedFields of a Deployment and of its ReplicaSets. It is for a Deployment
// that no plan governs any more and that has been handed back. Until then the ownership
// of template, strategy and paused is right: a server-side apply of another manager that
// changes them gets a conflict. The values stay. The fields then belong to gitsync where
// it has applied the Deployment, so that its next apply removes fields that the manifest
// is without. Otherwise they belong to no manager until one applies them.
//
// It is done once, when the last plan is gone, and not at each hand-back. The ownership
// of a size does no harm while a plan governs. The next release would take it again, at
// the cost of a write for each ReplicaSet.
//
// live reads past the cache, which has no managedFields. Each write is conditional
// on the resourceVersion that was read: a conflict is returned as it is. There is no
// write where tranche-rollout owns nothing. A Deployment that is gone is no error.
func Release(ctx context.Context, live client.Reader, w client.Writer, deployment types.NamespacedName) error {
	var d appsv1.Deployment
	if err := live.Get(ctx, deployment, &d); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("getting Deployment %s: %w", deployment, err)
	}
	if err := releaseFields(ctx, w, &d, "Deployment"); err != nil {
		return err
	}
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return fmt.Errorf("reading spec.selector of Deployment %s: %w", deployment, err)
	}
	var sets appsv1.ReplicaSetList
	if err := live.List(ctx, &sets, client.InNamespace(d.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return fmt.Errorf("listing the ReplicaSets of Deployment %s: %w", deployment, err)
	}
	for i := range sets.Items {
		rs := &sets.Items[i]
		if owner := metav1.GetControllerOf(rs); owner == nil || owner.UID != d.UID {
			continue
		}
		if err := releaseFields(ctx, w, rs, "ReplicaSet"); err != nil {
			return err
		}
	}
	return nil
}

// releaseFields does so for one object, as it was read from the API server.
func releaseFields(ctx context.Context, w client.Writer, o client.Object, kind string) error {
	name := client.ObjectKeyFromObject(o)
	left, changed, err := withoutRollout(o.GetManagedFields())
	if err != nil {
		return fmt.Errorf("reading the managed fields of %s %s: %w", kind, name, err)
	}
	if !changed {
		return nil
	}
	p := jsonpatch.Patch{}
	p.At(o)
	p.Add("/metadata/managedFields", left)
	if err := client.IgnoreNotFound(w.Patch(ctx, o, p.Raw(), client.FieldOwner(v1alpha1.ManagerRollout))); err != nil {
		return fmt.Errorf("releasing the fields of %s in %s %s: %w", v1alpha1.ManagerRollout, kind, name, err)
	}
	return nil
}

// withoutRollout returns the entries of the other managers, and whether tranche-rollout
// had one. An entry that gitsync has applied gets the fields of tranche-rollout. If no
// entry is left the list has an empty one, by which the API server clears it. It takes an
// empty list for no change.
func withoutRollout(entries []metav1.ManagedFieldsEntry) (left []metav1.ManagedFieldsEntry, changed bool, err error) {
	released := &fieldpath.Set{}
	for _, e := range entries {
		if e.Manager != v1alpha1.ManagerRollout {
			left = append(left, e)
			continue
		}
		changed = true
		if e.Subresource == "" {
			if released, err = union(released, e); err != nil {
				return nil, false, err
			}
		}
	}
	for i := range left {
		e := &left[i]
		if !changed || e.Manager != v1alpha1.ManagerGitSync || e.Operation != metav1.ManagedFieldsOperationApply || e.Subresource != "" {
			continue
		}
		all, err := union(released, *e)
		if err != nil {
			return nil, false, err
		}
		raw, err := all.ToJSON()
		if err != nil {
			return nil, false, fmt.Errorf("encoding the fields of %s: %w", e.Manager, err)
		}
		e.FieldsV1 = metav1.NewFieldsV1(string(raw))
	}
	if len(left) == 0 {
		left = []metav1.ManagedFieldsEntry{{}}
	}
	return left, changed, nil
}

// union adds the fields of an entry to a set.
func union(set *fieldpath.Set, e metav1.ManagedFieldsEntry) (*fieldpath.Set, error) {
	if e.FieldsV1 == nil {
		return set, nil
	}
	of := &fieldpath.Set{}
	if err := of.FromJSON(e.FieldsV1.GetRawReader()); err != nil {
		return nil, fmt.Errorf("decoding the fields of %s: %w", e.Manager, err)
	}
	return set.Union(of), nil
}
