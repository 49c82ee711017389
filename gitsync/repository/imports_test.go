package repository

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Commits are exchanged with a server by way of the disk, without a cluster or the
// reconciler.
func TestImports(t *testing.T) {
	const module = "github.com/tranche-dev/tranche/"
	out, err := exec.Command("go", "list", "-f", `{{join .Imports "\n"}}`, ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	below := []string{"gitsync/gitobject", "gitsync/gitserver", "gitsync/gittree", "plan", "plan/v1alpha1"}
	for _, dep := range strings.Fields(string(out)) {
		if own, ours := strings.CutPrefix(dep, module); ours && !slices.Contains(below, own) {
			t.Errorf("repository imports %s: below it are %s, and nothing else of this module", own, strings.Join(below, ", "))
		}
		client := strings.HasPrefix(dep, "k8s.io/client-go") || strings.HasPrefix(dep, "sigs.k8s.io/controller-runtime")
		if client && dep != "sigs.k8s.io/controller-runtime/pkg/metrics" {
			t.Errorf("repository imports %s: what is in the cluster does not change what a server has", dep)
		}
	}
}
