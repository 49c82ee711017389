package requests

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// A request is made of events and annotations. It needs no repository and no rendering.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{
			"gitsync/dependencies", "gitsync/fieldmanager", "gitsync/inventory", "gitsync/namedsecrets", "gitsync/notes", "gitsync/writeback",
			"plan", "plan/v1alpha1",
		},
		[]string{"github.com/go-git/", "sigs.k8s.io/kustomize/"})
}
