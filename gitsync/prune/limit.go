package prune

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// few is how many objects may be deleted at once without a confirmation, whatever their
// share is.
const few = 2

// CheckLimit refuses a commit that would delete more than half of what was applied. That is
// more likely a slip in a path, or a kustomization that lost its list, than meant. An
// annotation of the GitSource with the commit confirms it. Objects in status.kept have left
// the branch before, and do not count. Neither do objects that kustomize generates under
// another name, nor those that are not in the cluster. The inventory has all of a commit of which
// the API server refused a part.
func CheckLimit(
	ctx context.Context, as client.Reader, gs *v1alpha1.GitSource, before, wanted inventory.Set, commit string,
) error {
	before = maps.Clone(before)
	for _, k := range gs.Status.Kept {
		delete(before, k.ID)
	}
	generated := wanted.Generated()
	gone := slices.DeleteFunc(before.Without(wanted), func(e inventory.Entry) bool { return generated[e.WithoutHash()] })
	if !gs.Spec.Prune || !exceeds(len(gone), len(before)) {
		return nil
	}
	if c := strings.ToLower(gs.Annotations[v1alpha1.AnnotationConfirmPrune]); len(c) >= shortestCommit && strings.HasPrefix(commit, c) {
		return nil
	}
	all, was := len(before), len(gone)
	if gs.Status.AppliedWith == "" {
		gone = slices.DeleteFunc(gone, func(e inventory.Entry) bool { return isAbsent(ctx, as, e) })
		all -= was - len(gone)
		if !exceeds(len(gone), all) {
			return nil
		}
	}
	return &plan.Problem{
		Reason: v1alpha1.ReasonPruneRefused, Where: gs.Spec.Ref.String() + "@" + plan.ShortCommit(commit),
		Err: fmt.Errorf("%d of the %d objects that were applied would be deleted: %s",
			len(gone), all, plan.JoinNames(inventory.Names(gone))),
		Hint: fmt.Sprintf("if that is meant, kubectl annotate -n %s gitsource %s --overwrite %s=%s",
			gs.Namespace, gs.Name, v1alpha1.AnnotationConfirmPrune, plan.ShortCommit(commit)),
	}
}

// exceeds reports whether so many of all objects are not deleted without a confirmation.
func exceeds(gone, all int) bool { return gone > few && 2*gone > all }

// isAbsent reports whether an object is surely not in the cluster.
func isAbsent(ctx context.Context, as client.Reader, e inventory.Entry) bool {
	live, err := inventory.Get(ctx, as, e)
	return err == nil && live == nil
}

// shortestCommit is the minimum length of a commit in the annotation.
const shortestCommit = 7

// RefuseEmpty refuses a commit that has no objects at all: that is rather a mistake in
// a path than the intention to remove everything (G1).
func RefuseEmpty(gs *v1alpha1.GitSource, set *plan.Set) error {
	if len(set.Objects) > 0 || len(set.Releases) > 0 || gs.Status.Inventory == nil {
		return nil
	}
	return &plan.Problem{
		Reason: v1alpha1.ReasonNothingToApply, Where: gs.Spec.Path,
		Err:  errors.New("nothing is rendered, and all that was applied would have to go"),
		Hint: "correct spec.path; to remove everything, delete the GitSource",
	}
}
