package gitserver

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// A server can be reached, and its errors read, without a cluster or the reconciler.
func TestImports(t *testing.T) {
	const module = "github.com/tranche-dev/tranche/"
	out, err := exec.Command("go", "list", "-f", `{{join .Imports "\n"}}`, ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	below := []string{"gitsync/gittree", "plan", "plan/v1alpha1"}
	for _, dep := range strings.Fields(string(out)) {
		if own, ours := strings.CutPrefix(dep, module); ours && !slices.Contains(below, own) {
			t.Errorf("gitserver imports %s: below it are %s, and nothing else of this module", own, strings.Join(below, ", "))
		}
		for _, client := range []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime"} {
			if strings.HasPrefix(dep, client) {
				t.Errorf("gitserver imports %s: Secrets come as data, so that the command line can use its own", dep)
			}
		}
	}
}
