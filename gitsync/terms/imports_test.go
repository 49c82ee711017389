package terms

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// The terms that govern are found by reading. Nothing is written, to the cluster or to Git.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{
			"gitsync/apply", "gitsync/authors", "gitsync/desired", "gitsync/gitobject", "gitsync/gittree", "gitsync/inventory",
			"gitsync/repository", "gitsync/signature", "gitsync/signers", "plan", "plan/manifest", "plan/v1alpha1",
		},
		[]string{"k8s.io/client-go"})
}
