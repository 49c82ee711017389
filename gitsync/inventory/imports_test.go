package inventory

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// An object is a source's in the cluster, whatever Git has of it.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{"plan", "plan/records", "plan/v1alpha1"},
		[]string{"github.com/go-git/", "k8s.io/client-go", "sigs.k8s.io/kustomize/"})
}
