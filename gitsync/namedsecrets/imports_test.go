package namedsecrets

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// Targets are compared with the GitSources of the cluster. No commit is read for it.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{"gitsync/apply", "gitsync/credentials", "gitsync/inventory", "plan", "plan/v1alpha1"},
		[]string{"k8s.io/client-go", "sigs.k8s.io/kustomize/"})
}
