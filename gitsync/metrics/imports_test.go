package metrics

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// Metrics are counted without Git and without the cluster.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{"gitsync/gitserver", "plan", "plan/v1alpha1"},
		[]string{"github.com/go-git/", "k8s.io/client-go", "sigs.k8s.io/"})
}
