package changeset

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// The cluster's side of a commit is read without the reconciler. Nothing is pushed, and
// nothing is recorded.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{
			"gitsync/apiproblem", "gitsync/apply", "gitsync/desired", "gitsync/fieldmanager", "gitsync/inventory",
			"gitsync/prune", "gitsync/replay", "gitsync/siblings", "gitsync/takeover", "gitsync/terms",
			"plan", "plan/v1alpha1",
		},
		[]string{"github.com/go-git/", "k8s.io/client-go", "sigs.k8s.io/kustomize/"})
}
