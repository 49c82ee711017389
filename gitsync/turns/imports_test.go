package turns

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// Turns know namespaces and sources by name, and nothing of Git or the cluster.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{},
		[]string{"github.com/go-git/", "k8s.io/client-go", "sigs.k8s.io/"})
}
