package freshness

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// Sources are judged without Git and without the reconciler.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{"gitsync/metrics", "plan", "plan/v1alpha1"},
		[]string{"github.com/go-git/", "sigs.k8s.io/kustomize/"})
}
