package gittest

import (
	"os/exec"
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
	out, err := exec.Command("go", "list", "-f", `{{join .Imports "\n"}}`, ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for _, dep := range strings.Fields(string(out)) {
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
