package footprint

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// A footprint is compared without Git.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{"gitsync/apply", "gitsync/inventory", "gitsync/lists", "plan"},
		[]string{"github.com/go-git", "sigs.k8s.io/kustomize/"})
}
