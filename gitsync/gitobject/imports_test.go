package gitobject

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Objects can be made, tested and changed without a server, a cluster or the reconciler.
func TestImports(t *testing.T) {
	const module = "github.com/tranche-dev/tranche/"
	out, err := exec.Command("go", "list", "-f", `{{join .Imports "\n"}}`, ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	below := []string{"gitsync/gittree", "gitsync/signature"}
	for _, dep := range strings.Fields(string(out)) {
		if own, ours := strings.CutPrefix(dep, module); ours && !slices.Contains(below, own) {
			t.Errorf("gitobject imports %s: below it are %s, and nothing else of this module", own, strings.Join(below, " and "))
		}
		for _, other := range []string{"k8s.io/", "sigs.k8s.io/", "net/http"} {
			if strings.HasPrefix(dep, other) {
				t.Errorf("gitobject imports %s: an object of Git is the same whatever a cluster or a server says", dep)
			}
		}
	}
}
