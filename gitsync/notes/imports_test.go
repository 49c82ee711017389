package notes

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// Notes are a function of the releases' status and of the notes that are there.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{"gitsync/desired", "gitsync/gitobject", "plan", "plan/measure", "plan/v1alpha1"}, []string{"k8s.io/client-go"})
}
