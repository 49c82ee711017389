package siblings

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// The other sources of a branch are judged without the reconciler, and nothing is written.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{"gitsync/apiproblem", "gitsync/apply", "gitsync/credentials", "gitsync/desired", "gitsync/gitobject",
			"gitsync/inventory", "gitsync/repository", "gitsync/signers", "plan", "plan/v1alpha1"},
		[]string{"k8s.io/client-go"})
}
