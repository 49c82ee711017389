package authors

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// Who made a change is found in what commits render. How they are rendered is a matter of
// package desired.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{"gitsync/gitobject", "gitsync/gittree", "gitsync/signature", "gitsync/signers", "plan"},
		[]string{"k8s.io/client-go"})
}
