package fieldmanager

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// appliers are those who apply for a user: kubectl apply --server-side, Flux and Argo CD. A user
// who moves to Tranche leaves their fields behind.
var appliers = []string{"kubectl", "kustomize-controller", "argocd-controller"}

// Claim makes gitsync the only manager of the fields that it has applied. An object that kubectl,
// Helm, Flux or Argo CD made has them as managers of the same fields, if the values were the same.
// A field that leaves Git would then stay in the object. So callers do this before they apply.
// Managers by apply keep their fields, if they are none of appliers: they apply again. So does rollout.
//
// A field that Git does not set keeps its managers, and stays. Claim returns the object as it is then.
func Claim(ctx context.Context, c client.Client, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	live, err := rewrite(ctx, c, live, claim)
	if err != nil {
		return nil, fmt.Errorf("claiming the fields that Git sets: %w", err)
	}
	return live, nil
}

// claim returns the patch by which others lose the fields that gitsync has applied. It is nil if
// they have none.
func claim(u *unstructured.Unstructured) (client.Patch, error) {
	entries := u.GetManagedFields()
	i := slices.IndexFunc(entries, func(e metav1.ManagedFieldsEntry) bool { return isApplied(e, v1alpha1.ManagerGitSync) })
	if i < 0 || !slices.ContainsFunc(entries, isClaimed) {
		return nil, nil
	}
	ours, err := setOf(u, entries[i])
	if err != nil {
		return nil, err
	}
	patch := entryPatch{of: u}
	for j, e := range entries {
		if !isClaimed(e) || e.APIVersion != entries[i].APIVersion {
			continue
		}
		theirs, err := setOf(u, e)
		if err != nil {
			return nil, err
		}
		// Fields of a list item that Git does not set go with the item.
		if left := theirs.Difference(ours).RecursiveDifference(itemsOf(ours)); !left.Equals(theirs) {
			patch.replace(j, e, left)
		}
	}
	if len(patch.operations) == 0 {
		return nil, nil
	}
	return patch.raw()
}

// isClaimed reports whether an entry loses the fields that Git sets.
func isClaimed(e metav1.ManagedFieldsEntry) bool {
	switch e.Manager {
	case v1alpha1.ManagerGitSync, v1alpha1.ManagerRollout, ManagerReplicas:
		return false
	}
	return e.Subresource == "" && e.FieldsV1 != nil &&
		(e.Operation == metav1.ManagedFieldsOperationUpdate || slices.Contains(appliers, e.Manager))
}

// itemsOf returns the items of lists that are in a set.
func itemsOf(set *fieldpath.Set) *fieldpath.Set {
	items := &fieldpath.Set{}
	for p := range set.All() {
		if p[len(p)-1].FieldName == nil {
			items.Insert(p.Copy())
		}
	}
	return items
}
