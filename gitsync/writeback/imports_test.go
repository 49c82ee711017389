package writeback

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// Decisions are committed without the reconciler: the caller writes status and events.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{"gitsync/apiproblem", "gitsync/apply", "gitsync/credentials", "gitsync/desired", "gitsync/gitobject", "gitsync/gitserver", "gitsync/gittree", "gitsync/inventory", "gitsync/replay", "gitsync/repository", "gitsync/revert", "gitsync/siblings", "gitsync/terms", "gitsync/turns", "plan", "plan/manifest", "plan/measure", "plan/v1alpha1"},
		[]string{"k8s.io/client-go"})
}
