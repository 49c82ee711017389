package clients

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// A client is made from the names of an account alone.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{"plan", "plan/v1alpha1"},
		[]string{"github.com/go-git", "sigs.k8s.io/kustomize/"})
}
