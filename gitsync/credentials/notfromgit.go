package credentials

import (
	"errors"

	"github.com/tranche-dev/tranche/gitsync/apiproblem"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// NotFromGit returns why an object may not come from Git, since a GitSource names it;
// nil: it may.
func NotFromGit(gs *v1alpha1.GitSource, o plan.Object) *plan.Problem {
	field := inventory.FieldNaming(gs, o.GetNamespace(), o.GetName())
	if o.GroupVersionKind().GroupKind() != inventory.SecretKind || field == "" {
		return nil
	}
	return &plan.Problem{
		Reason: v1alpha1.ReasonSecretNotAllowed, Where: apiproblem.Where(o) + ": metadata.name",
		Err:  errors.New(inventory.NamesSecret(gs, o.GetNamespace(), o.GetName()) + ", and no commit may bring it"),
		Hint: "remove the manifest from the branch, and change the Secret with kubectl",
	}
}
