package gitobject_test

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// Objects can be made, tested and changed without a server, a cluster or the reconciler.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{"gitsync/gittree", "gitsync/signature"},
		[]string{"k8s.io/", "sigs.k8s.io/", "net/http"})
}
