package stage

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// A commit is applied without Git and without the reconciler.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{
			"gitsync/apiproblem", "gitsync/apply", "gitsync/fieldmanager", "gitsync/inventory", "gitsync/takeover",
			"plan", "plan/contest", "plan/v1alpha1",
		},
		[]string{"github.com/go-git/", "sigs.k8s.io/kustomize/"})
}
