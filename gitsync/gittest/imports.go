package gittest

import (
	"go/build"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/tranche-dev/tranche/"

// OnlyImports fails t if the package in the current folder imports a package of this
// module that is not allowed. It also fails t for an import of another module whose path
// has a prefix in others. Paths of this module are given without the module's.
func OnlyImports(t *testing.T, allowed, others []string) {
	t.Helper()
	here, err := build.ImportDir(".", 0) // go list says the same, but is a process that reads the module
	if err != nil {
		t.Fatal(err)
	}
	for _, dep := range here.Imports {
		if own, ours := strings.CutPrefix(dep, module); ours && !slices.Contains(allowed, own) {
			t.Errorf("it imports %s: of this module it may import %s", own, strings.Join(allowed, ", "))
		}
		for _, other := range others {
			if strings.HasPrefix(dep, other) && dep != metrics {
				t.Errorf("it imports %s, which it has to do without", dep)
			}
		}
	}
}

// metrics is the package in which metrics are registered; it reaches no cluster.
const metrics = "sigs.k8s.io/controller-runtime/pkg/metrics"
