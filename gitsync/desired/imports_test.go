package desired

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// A commit is read without the reconciler. Nothing is pushed or written.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{
			"gitsync/apply", "gitsync/authors", "gitsync/gitobject", "gitsync/gittree", "gitsync/giturl", "gitsync/inventory",
			"gitsync/replay", "gitsync/repository", "gitsync/signature", "gitsync/signers", "plan", "plan/manifest", "plan/queries", "plan/v1alpha1",
		},
		[]string{"k8s.io/client-go"})
}
