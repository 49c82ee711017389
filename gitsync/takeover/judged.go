package takeover

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// ChangedMeanwhile returns a conflict about a BatchRelease, so that its source syncs again.
func ChangedMeanwhile(o client.Object) error {
	resource := schema.GroupResource{Group: v1alpha1.Group, Resource: "batchreleases"}
	return apierrors.NewConflict(resource, o.GetName(), errors.New("it was written since it was read"))
}

// AsJudged returns a conflict unless live is the BatchRelease that judged is. The commit of
// a release and its approvals were found with judged. One that has gone since is made again
// as another release. If judged has another name, its release is taken over.
func AsJudged(o client.Object, judged *v1alpha1.BatchRelease, live *unstructured.Unstructured) error {
	var was, is types.UID
	if judged != nil {
		was = judged.UID
	}
	if live != nil {
		is = live.GetUID()
	}
	if was == is || judged != nil && judged.Name != o.GetName() {
		return nil
	}
	return ChangedMeanwhile(o)
}
