package report

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// A sync is reported from its outcome. Nothing is fetched, rendered or applied for it.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{
			"gitsync/apiproblem", "gitsync/desired", "gitsync/metrics", "gitsync/outcome", "gitsync/requests",
			"plan", "plan/v1alpha1",
		},
		[]string{"github.com/go-git/", "sigs.k8s.io/kustomize/"})
}
