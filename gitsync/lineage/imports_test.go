package lineage

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// The shape of a history is known without what its commits render, and without who made them.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{"gitsync/gittree"},
		[]string{"k8s.io/", "sigs.k8s.io/"})
}
