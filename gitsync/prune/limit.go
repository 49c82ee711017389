package prune

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// few is how many objects may go at once without being asked for, whatever
// part of the whole they are.
const few = 2

// CheckLimit refuses a commit that would prune more than half of what was
// applied: rather a slip in a path, or a kustomization that lost its list,
// than a wish. Nothing of it is applied until the GitSource is annotated with
// the commit. What is kept has left the branch before, and what is generated
// anew under another name is not taken away.
func CheckLimit(gs *v1alpha1.GitSource, before, wanted inventory.Set, commit string) error {
	before = maps.Clone(before)
	for _, k := range gs.Status.Kept {
		delete(before, k.ID)
	}
	anew := wanted.Generated()
	gone := slices.DeleteFunc(before.Without(wanted), func(e inventory.Entry) bool { return anew[e.WithoutHash()] })
	if !gs.Spec.Prune || len(gone) <= few || 2*len(gone) <= len(before) {
		return nil
	}
	if c := strings.ToLower(gs.Annotations[v1alpha1.AnnotationConfirmPrune]); len(c) >= shortestCommit && strings.HasPrefix(commit, c) {
		return nil
	}
	return &plan.Problem{
		Reason: v1alpha1.ReasonPruneRefused, Where: gs.Spec.Ref.String() + "@" + plan.ShortCommit(commit),
		Err:  fmt.Errorf("%d of the %d objects that were applied would be deleted: %s", len(gone), len(before), plan.JoinNames(inventory.Names(gone))),
		Hint: fmt.Sprintf("if that is meant, kubectl annotate -n %s gitsource %s --overwrite %s=%s", gs.Namespace, gs.Name, v1alpha1.AnnotationConfirmPrune, plan.ShortCommit(commit)),
	}
}

// shortestCommit is how many characters of a commit name it.
const shortestCommit = 7
