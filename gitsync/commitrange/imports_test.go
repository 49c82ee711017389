package commitrange

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// Commits are compared by what was read of their trees, and nothing is rendered.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{"gitsync/gitobject", "gitsync/gittree"},
		[]string{"k8s.io/client-go", "sigs.k8s.io/"})
}
