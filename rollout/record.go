package rollout

import (
	"cmp"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// newRecord returns the ControllerRevision of a record. The Deployment owns it
// and is its controller, so that no other controller adopts it. The BatchRelease
// owns it, too: it outlives the Deployment by that.
func newRecord(d *appsv1.Deployment, br *v1alpha1.BatchRelease, r engine.Record) (*appsv1.ControllerRevision, error) {
	c, err := r.ControllerRevision(d.Namespace)
	if err != nil {
		return nil, err
	}
	// The digest and not the revision: two templates may have one name (H29).
	c.Name = engine.NameWithHash(d.Name, cmp.Or(r.Revision, "revision")+"-"+plan.TemplateDigest(r.Template)[:10])
	c.OwnerReferences = ownersOf(d, br)
	return c, nil
}

// ownersOf a record. Neither blocks the deletion of its owner, which would need
// a right to the owner's finalizers.
func ownersOf(d *appsv1.Deployment, br *v1alpha1.BatchRelease) []metav1.OwnerReference {
	owner := metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))
	owner.BlockOwnerDeletion = nil
	return []metav1.OwnerReference{*owner, {
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "BatchRelease", Name: br.Name, UID: br.UID,
	}}
}
