package takeover

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// The takeover does not depend on how its commit is rendered or applied.
func TestImports(t *testing.T) {
	gittest.OnlyImports(t,
		[]string{"gitsync/apiproblem", "gitsync/fieldmanager", "gitsync/inventory", "gitsync/lists", "plan", "plan/records", "plan/v1alpha1"},
		[]string{"github.com/go-git"})
}
