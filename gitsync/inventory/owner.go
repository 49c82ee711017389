package inventory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// IsLeftAlone reports whether an annotation of an object disables its reconciliation. A nil
// object is not left alone.
func IsLeftAlone(u *unstructured.Unstructured) bool {
	return u != nil && u.GetAnnotations()[v1alpha1.AnnotationReconcile] == v1alpha1.AnnotationReconcileDisabled
}

// Labels returns the labels of the objects that a GitSource applies. Deployments do not
// have them.
func Labels(gs *v1alpha1.GitSource) map[string]string {
	return map[string]string{v1alpha1.LabelSource: LabelValue(gs.Name), v1alpha1.LabelSourceNamespace: gs.Namespace}
}

// MaxLabelValue is the maximum length of a label's value. A name may have 253 characters.
const MaxLabelValue = 63

// LabelValue returns a name as a label has it: shortened, with a hash, if it is too long.
func LabelValue(name string) string {
	if len(name) <= MaxLabelValue {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:54] + "-" + hex.EncodeToString(sum[:4])
}

// IsOwned reports whether a GitSource applies an object, by its labels. A Deployment has no
// label of a source (I7): gitsync's field manager says it.
// The field manager is the same for all sources; [Has] and [Owner] tell which one applies
// the Deployment.
func IsOwned(o client.Object, gs *v1alpha1.GitSource) bool {
	if o.GetObjectKind().GroupVersionKind().GroupKind() == DeploymentKind {
		return hasGitSync(o)
	}
	labels := o.GetLabels()
	for k, v := range Labels(gs) {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// Owner returns the GitSource besides gs that has an object in its inventory, or nil.
func Owner(sources *v1alpha1.GitSourceList, gs *v1alpha1.GitSource, e Entry) *v1alpha1.GitSource {
	for i := range sources.Items {
		if other := &sources.Items[i]; other.UID != gs.UID && Has(other.Status.Inventory, e.ID()) {
			return other
		}
	}
	return nil
}

// Sources returns the GitSources of all namespaces.
func Sources(ctx context.Context, c client.Reader) (*v1alpha1.GitSourceList, error) {
	var sources v1alpha1.GitSourceList
	if err := c.List(ctx, &sources); err != nil {
		return nil, fmt.Errorf("listing the GitSources: %w", err)
	}
	return &sources, nil
}

// Has reports whether the inventory of a status has an id.
func Has(inventory *v1alpha1.Inventory, id string) bool {
	return inventory != nil && slices.ContainsFunc(inventory.Entries, func(e v1alpha1.InventoryEntry) bool { return e.ID == id })
}

// hasGitSync reports whether gitsync has applied fields of an object.
func hasGitSync(o client.Object) bool {
	return slices.ContainsFunc(o.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == v1alpha1.ManagerGitSync && e.Operation == metav1.ManagedFieldsOperationApply
	})
}
