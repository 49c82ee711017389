package credentials

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// Secrets are read without the reconciler. Nothing is fetched, pushed or written.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{"gitsync/apiproblem", "gitsync/desired", "gitsync/gitobject", "gitsync/gitserver", "gitsync/inventory", "gitsync/repository", "gitsync/signature", "gitsync/signers", "plan", "plan/v1alpha1"},
		[]string{"k8s.io/client-go", "sigs.k8s.io/kustomize/"})
}
