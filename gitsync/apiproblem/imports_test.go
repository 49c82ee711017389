package apiproblem

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// An answer is put into words without asking the API server again.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{"plan", "plan/v1alpha1"},
		[]string{"github.com/go-git/", "k8s.io/client-go", "sigs.k8s.io/controller-runtime", "sigs.k8s.io/kustomize/"})
}
