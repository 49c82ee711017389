package rollout

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/engine/native"
)

// newRecord returns the ControllerRevision of a record. The Deployment owns it
// and is its controller, so that no other controller adopts it. The BatchRelease
// owns it, too: it outlives the Deployment by that.
func newRecord(d *appsv1.Deployment, br *v1alpha1.BatchRelease, r engine.Record) (*appsv1.ControllerRevision, error) {
	c, err := r.ControllerRevision(d.Namespace)
	if err != nil {
		return nil, err
	}
	c.Name = recordName(d.Name, r)
	c.OwnerReferences = ownersOf(d, br)
	return c, nil
}

// recordName returns the name of a record of a Deployment, by the revision and the content:
// two templates may have one revision name (H29).
func recordName(deployment string, r engine.Record) string {
	return native.NameWithHash(deployment, cmp.Or(r.Revision, "revision")+"-"+plan.TemplateDigest(r.Template)[:10])
}

// ownersOf a record, which the BatchRelease controls: see [plan.Record]. Neither reference
// blocks the deletion of its owner, which would need a right to the owner's finalizers.
func ownersOf(d *appsv1.Deployment, br *v1alpha1.BatchRelease) []metav1.OwnerReference {
	return []metav1.OwnerReference{
		{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment", Name: d.Name, UID: d.UID},
		{APIVersion: v1alpha1.GroupVersion.String(), Kind: "BatchRelease", Name: br.Name, UID: br.UID, Controller: new(true)},
	}
}

// orderKeys makes a record again whose data has its keys in another order, as an earlier
// version wrote them. The garbage collector cannot orphan it, since its patch sorts the
// keys and the data may not change. A Deployment that is deleted with --cascade=orphan
// then never goes. orderKeys creates the new record before it deletes the old one, so
// that a crash loses nothing. It reports whether there was one to make.
func orderKeys(ctx context.Context, c client.Client, old *appsv1.ControllerRevision) (bool, error) {
	var content map[string]any
	if err := utiljson.Unmarshal(old.Data.Raw, &content); err != nil {
		return false, fmt.Errorf("reading ControllerRevision %s/%s: data: %w", old.Namespace, old.Name, err)
	}
	ordered, err := json.Marshal(content)
	if err != nil || bytes.Equal(ordered, old.Data.Raw) {
		return false, err
	}
	record := old.DeepCopy()
	record.ObjectMeta = metav1.ObjectMeta{
		Namespace: old.Namespace, Labels: old.Labels, Annotations: old.Annotations, OwnerReferences: old.OwnerReferences,
	}
	sum := sha256.Sum256(ordered) // the name says the content: one that is there already is the same
	record.Name = native.NameWithHash(old.Name, hex.EncodeToString(sum[:])[:10])
	record.Data.Raw = ordered
	if err := c.Create(ctx, record, fieldOwner); err != nil && !apierrors.IsAlreadyExists(err) {
		return false, fmt.Errorf("making ControllerRevision %s/%s again, with its keys in order: %w", old.Namespace, old.Name, err)
	}
	if err := c.Delete(ctx, old, client.Preconditions{UID: &old.UID, ResourceVersion: &old.ResourceVersion}); err != nil {
		return false, fmt.Errorf("deleting ControllerRevision %s/%s, which has been made again: %w", old.Namespace, old.Name, err)
	}
	return true, nil
}
