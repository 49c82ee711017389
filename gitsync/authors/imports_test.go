package authors

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// The authors of a change are found in what commits render. Package desired has how they are
// rendered.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{
			"gitsync/gitobject", "gitsync/gittree", "gitsync/lineage", "gitsync/ownchanges", "gitsync/signature", "gitsync/signers", "plan",
		},
		[]string{"k8s.io/client-go"})
}
