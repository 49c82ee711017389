package execute

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// A prepared commit is applied. No server is asked for another one, and none is rendered.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{
			"gitsync/apply", "gitsync/apply/stage", "gitsync/changeset", "gitsync/departed", "gitsync/desired", "gitsync/inventory",
			"gitsync/namedsecrets", "gitsync/outcome", "gitsync/replay", "gitsync/report", "gitsync/requests", "gitsync/siblings",
			"plan", "plan/v1alpha1",
		},
		[]string{"github.com/go-git/", "k8s.io/client-go", "sigs.k8s.io/kustomize/"})
}
