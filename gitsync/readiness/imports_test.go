package readiness

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// Readiness is of an object alone.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{"gitsync/inventory", "plan", "plan/v1alpha1"},
		[]string{"github.com/go-git", "sigs.k8s.io/kustomize/"})
}
