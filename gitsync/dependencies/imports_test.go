package dependencies

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// A source waits for statuses of others, and not for their commits.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{"gitsync/desired", "plan", "plan/v1alpha1"},
		[]string{"sigs.k8s.io/kustomize/"})
}
