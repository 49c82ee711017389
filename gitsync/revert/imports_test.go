package revert

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// Changes are taken back in memory, without the cluster.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{"gitsync/desired", "gitsync/gitobject", "gitsync/gittree", "plan", "plan/v1alpha1"},
		[]string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime"})
}
