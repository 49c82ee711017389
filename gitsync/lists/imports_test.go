package lists

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// Lists know nothing of sources.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{"plan", "plan/records", "plan/v1alpha1"},
		[]string{"github.com/go-git", "sigs.k8s.io/kustomize/"})
}
