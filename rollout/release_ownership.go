package rollout

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// releaseOwnership takes the entries of field manager tranche-rollout out of
// metadata.managedFields of a Deployment. It is for a Deployment that no plan
// governs any more and that has been handed back: until then the ownership of
// template, strategy and paused is right, and a server-side apply of another
// manager that changes them is answered with a conflict. The values stay, and
// belong to no manager until one applies them.
//
// live reads past the cache, which has no managedFields. The write is conditional
// on the resourceVersion that was read, and there is none when tranche-rollout
// owns nothing. A Deployment that is gone is no error.
func releaseOwnership(ctx context.Context, live client.Reader, w client.Writer, deployment types.NamespacedName) error {
	var d appsv1.Deployment
	if err := live.Get(ctx, deployment, &d); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil
		}
		return fmt.Errorf("getting Deployment %s: %w", deployment, err)
	}
	left, changed := withoutManager(d.ManagedFields, v1alpha1.ManagerRollout)
	if !changed {
		return nil
	}
	p := jsonPatch{}
	p.at(&d)
	p.add("/metadata/managedFields", left)
	if err := client.IgnoreNotFound(w.Patch(ctx, &d, p.patch(), fieldOwner)); err != nil {
		return fmt.Errorf("releasing the fields of %s in Deployment %s: %w", v1alpha1.ManagerRollout, deployment, err)
	}
	return nil
}

// withoutManager returns the entries of the other managers, and whether there was
// one of this manager. Where no entry is left it returns an empty one, by which
// the API server clears the list: it takes an empty list for no change.
func withoutManager(entries []metav1.ManagedFieldsEntry, manager string) (left []metav1.ManagedFieldsEntry, changed bool) {
	for _, e := range entries {
		if e.Manager == manager {
			changed = true
			continue
		}
		left = append(left, e)
	}
	if len(left) == 0 {
		left = []metav1.ManagedFieldsEntry{{}}
	}
	return left, changed
}
