package signers

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// The signer of something is found in the repository alone. Nothing is rendered for it.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{"gitsync/gitobject", "gitsync/gittree", "gitsync/repository", "gitsync/signature", "plan", "plan/v1alpha1"},
		[]string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime"})
}
