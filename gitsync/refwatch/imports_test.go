package refwatch_test

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// A push is noticed on disk: who syncs then, and how, is the Requester's.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		nil,
		[]string{"github.com/go-git/", "k8s.io/client-go", "sigs.k8s.io/controller-runtime"})
}
