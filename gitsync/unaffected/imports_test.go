package unaffected

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// Commits are compared with what was read. No cluster is asked.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{
			"gitsync/apply", "gitsync/commitrange", "gitsync/desired", "gitsync/gittree", "gitsync/repository",
			"plan/manifest", "plan/v1alpha1",
		},
		[]string{"k8s.io/client-go", "sigs.k8s.io/"})
}
