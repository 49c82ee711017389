package preview

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// A preview only reads, and needs no reconciler. Its client-go is that of OpenAPI schemas.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{"gitsync/apiproblem", "gitsync/apply", "gitsync/credentials", "gitsync/desired", "gitsync/gitserver", "gitsync/gittree",
			"gitsync/inventory", "gitsync/lists", "gitsync/prune", "gitsync/repository", "gitsync/siblings", "gitsync/takeover", "gitsync/terms",
			"plan", "plan/manifest", "plan/v1alpha1"},
		[]string{"sigs.k8s.io/kustomize/"})
}
