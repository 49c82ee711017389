package gittree

import (
	"os/exec"
	"strings"
	"testing"
)

// A tree can be read, tested and changed without a server, a cluster or the reconciler.
func TestImports(t *testing.T) {
	const module = "github.com/tranche-dev/tranche/"
	out, err := exec.Command("go", "list", "-deps", "-f", "{{.ImportPath}}", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for _, dep := range strings.Fields(string(out)) {
		own, ours := strings.CutPrefix(dep, module)
		if ours && own != "gitsync/gittree" && own != "plan" && !strings.HasPrefix(own, "plan/") {
			t.Errorf("gittree depends on %s: of this module it needs what reads manifests, and nothing else", own)
		}
		for _, client := range []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime"} {
			if strings.HasPrefix(dep, client) {
				t.Errorf("gittree depends on %s: a commit says the same whatever the cluster says", dep)
			}
		}
	}
}
