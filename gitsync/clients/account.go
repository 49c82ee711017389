package clients

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// NameMissingAccount says of the account that lacks a right that it is not there at
// all, where that is so.
func NameMissingAccount(ctx context.Context, own client.Reader, key types.NamespacedName, problems plan.Problems) {
	var found *bool
	for _, p := range problems {
		if p.Reason != v1alpha1.ReasonForbidden || p.Hint != "give service account "+key.String()+" the right" {
			continue
		}
		if found == nil {
			account := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}}
			found = ptr.To(!apierrors.IsNotFound(own.Get(ctx, key, &account)))
		}
		if !*found {
			p.Hint = "there is no service account " + key.String() + ": create it, or correct spec.serviceAccountName"
		}
	}
}
