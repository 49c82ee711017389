package takeover

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/tranche-dev/tranche/gitsync/fieldmanager"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// A user who may write BatchReleases may make one under the name that Git gives to a plan
// later. No policy guards it, for it has no labels of a GitSource. Server-side apply
// leaves what Git does not set: an approval, or an owner with which the garbage collector
// deletes the plan. So of such a BatchRelease gitsync keeps nothing that only Git or the
// controller says:
//
//   - If another plan of the source governs the Deployment, it governs nothing. It is
//     deleted and created again.
//   - Elsewhere it may have a release under way, which goes on. It loses its owners, its
//     finalizers and all of its spec that Git does not say, except for spec.paused; with
//     signers, its status, too. Only then it gets the labels.
//   - If it is not there yet, gitsync creates the plan. An apply would be merged into one
//     that a user makes at the same time.
//
// The source's own plans lose owners and approvals that Git does not say, at each sync.

// onlyGits are the fields in the spec of a BatchRelease that only Git and the
// controller says, and that Git may leave out.
var onlyGits = []string{"approval", "approvalsSince", "deploymentStrategy", "reviewApprovals", "requireSignedApprovals",
	"serviceAccountName"}

// Disinherited is a BatchRelease of the cluster without what neither Git nor its user may
// have said, and what that is.
func Disinherited(
	live *unstructured.Unstructured, wanted plan.Object, gs *v1alpha1.GitSource,
) (*unstructured.Unstructured, []string, error) {
	var lost []string
	next := live.DeepCopy()
	others, err := foreignSpec(live)
	if err != nil {
		return nil, nil, err
	}
	if len(next.GetOwnerReferences()) > 0 {
		next.SetOwnerReferences(nil)
		lost = append(lost, "metadata.ownerReferences")
	}
	spec, _, _ := unstructured.NestedMap(next.Object, "spec")
	says, _, _ := unstructured.NestedMap(wanted.Object, "spec")
	if inventory.IsOwned(live, gs) {
		for _, field := range onlyGits {
			if _, ok := spec[field]; ok && says[field] == nil && others.Has(field) {
				delete(spec, field)
				lost = append(lost, "spec."+field)
			}
		}
	} else {
		if len(next.GetFinalizers()) > 0 {
			next.SetFinalizers(nil)
			lost = append(lost, "metadata.finalizers")
		}
		lost = append(lost, keepSaid(spec, says, "spec")...)
	}
	next.Object["spec"] = spec
	return next, lost, nil
}

// foreignSpec returns which of [onlyGits] another manager than gitsync has written, or
// none. A field that gitsync alone has applied goes with the next apply.
func foreignSpec(live *unstructured.Unstructured) (sets.Set[string], error) {
	applied, err := fieldmanager.AppliedSpec(live, onlyGits...)
	if err != nil {
		return nil, err
	}
	foreign := sets.New(onlyGits...).Delete(applied...)
	for _, e := range live.GetManagedFields() {
		if e.Manager == v1alpha1.ManagerGitSync && e.Operation == metav1.ManagedFieldsOperationApply || e.FieldsV1 == nil {
			continue
		}
		set := &fieldpath.Set{}
		if err := set.FromJSON(e.FieldsV1.GetRawReader()); err != nil {
			return nil, fmt.Errorf("reading the managed fields of %s: %w", inventory.Of(live), err)
		}
		spec := set.WithPrefix(fieldmanager.Name("spec"))
		for _, name := range onlyGits {
			if spec.Members.Has(fieldmanager.Name(name)) || !spec.WithPrefix(fieldmanager.Name(name)).Empty() {
				foreign.Insert(name)
			}
		}
	}
	return foreign, nil
}

// keepSaid deletes the fields of an object that a manifest does not say, except for
// spec.paused, and returns their paths.
func keepSaid(object, says map[string]any, path string) []string {
	var lost []string
	for name, value := range object {
		at := path + "." + name
		said, ok := says[name]
		if !ok && at != "spec.paused" {
			delete(object, name)
			lost = append(lost, at)
			continue
		}
		inner, isMap := value.(map[string]any)
		saidInner, alsoMap := said.(map[string]any)
		if isMap && alsoMap {
			lost = append(lost, keepSaid(inner, saidInner, at)...)
		}
	}
	slices.Sort(lost)
	return lost
}

// IsForeign reports whether a BatchRelease that is there is of no GitSource.
func IsForeign(live *unstructured.Unstructured) bool {
	return live != nil && live.GetLabels()[v1alpha1.LabelSource] == ""
}

// Unclaimed returns a BatchRelease of the cluster without what only Git and the controller
// say, unless a policy has guarded it.
func Unclaimed(br *v1alpha1.BatchRelease) *v1alpha1.BatchRelease {
	if br == nil || br.Labels[v1alpha1.LabelSource] != "" {
		return br
	}
	br = br.DeepCopy()
	br.Spec.Commit, br.Spec.Approval, br.Spec.ApprovalsSince = "", nil, nil
	return br
}
