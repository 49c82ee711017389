package gitserver_test

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// A server can be reached, and its errors read, without a cluster or the reconciler.
// Secrets come as data, so that the command line can use its own.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{"gitsync/gittree", "gitsync/turns", "plan", "plan/v1alpha1"},
		[]string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime"})
}
