package fieldmanager

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// A field has its managers whatever Git says of it.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{"gitsync/inventory", "plan/v1alpha1"},
		[]string{"github.com/go-git/", "sigs.k8s.io/kustomize/"})
}
