package departed

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// Objects are pruned for what the inventory and the cluster say. No commit is rendered for it.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{"gitsync/desired", "gitsync/inventory", "gitsync/prune", "gitsync/replay", "gitsync/siblings", "plan", "plan/v1alpha1"},
		[]string{"k8s.io/client-go", "sigs.k8s.io/kustomize/"})
}
