package outcome

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// Conditions are computed from values, without a cluster and without a repository.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{"gitsync/desired", "gitsync/gitserver", "gitsync/readiness", "plan", "plan/v1alpha1"},
		[]string{"k8s.io/client-go", "sigs.k8s.io/"})
}
