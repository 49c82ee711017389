package replay

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// Whether an approval is too old is found in the history and the status alone.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{"gitsync/gitobject", "gitsync/gittree", "plan", "plan/v1alpha1"},
		[]string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime"})
}
