package cli

import (
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// DeletionOf returns that a BatchRelease is being deleted, and the finalizers that keep it.
// It is empty for one that is not.
func DeletionOf(br *v1alpha1.BatchRelease) string {
	if br.DeletionTimestamp == nil {
		return ""
	}
	said := "being deleted"
	if len(br.Finalizers) > 0 {
		said += ", kept by finalizers " + plan.JoinNames(br.Finalizers)
	}
	if br.Annotations[v1alpha1.AnnotationReturns] != "" {
		said += "; the branch has it again, and it is created once it is gone"
	}
	return said
}
