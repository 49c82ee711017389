package prune

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// An object is deleted for what the cluster and the inventory say, whatever is applied.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{"gitsync/apiproblem", "gitsync/inventory", "plan", "plan/v1alpha1"},
		[]string{"github.com/go-git/", "k8s.io/client-go", "sigs.k8s.io/kustomize/"})
}
