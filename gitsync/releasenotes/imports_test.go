package releasenotes

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// Notes are written from the status of releases, without a rendering.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{
			"gitsync/apply", "gitsync/credentials", "gitsync/desired", "gitsync/gitobject", "gitsync/gitserver", "gitsync/gittree",
			"gitsync/notes", "gitsync/repository", "gitsync/turns", "gitsync/writeback", "plan", "plan/v1alpha1",
		},
		[]string{"k8s.io/client-go", "sigs.k8s.io/kustomize/"})
}
