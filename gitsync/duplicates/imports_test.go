package duplicates_test

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// A manifest is checked without a cluster.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t, []string{"plan"}, []string{"sigs.k8s.io/controller-runtime", "github.com/go-git/"})
}
