package rendering

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// Folders are rendered for a GitSource. No cluster is asked, and no commit is chosen.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{"gitsync/desired", "gitsync/repository", "gitsync/turns", "plan", "plan/manifest", "plan/v1alpha1"},
		[]string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime"})
}
