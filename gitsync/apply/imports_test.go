package apply

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// Objects are applied without Git and without the reconciler. Package prune
// deletes what left the branch.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{
			"gitsync/apiproblem", "gitsync/duplicates", "gitsync/fieldmanager", "gitsync/inventory", "gitsync/lists", "gitsync/takeover",
			"plan", "plan/contest", "plan/v1alpha1",
		},
		[]string{"github.com/go-git/", "sigs.k8s.io/kustomize/"})
}
