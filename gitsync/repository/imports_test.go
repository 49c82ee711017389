package repository_test

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// Commits are exchanged with a server by way of the disk, without a cluster or the
// reconciler.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{"gitsync/gitobject", "gitsync/gitserver", "gitsync/gittree", "plan", "plan/manifest", "plan/v1alpha1"},
		[]string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime"})
}
