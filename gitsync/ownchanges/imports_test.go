package ownchanges

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// The changes of a commit are found in trees, without a rendering and without a signature.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{"gitsync/gitobject", "gitsync/gittree"},
		[]string{"k8s.io/", "sigs.k8s.io/"})
}
