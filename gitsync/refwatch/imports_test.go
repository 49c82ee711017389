package refwatch

import (
	"os/exec"
	"strings"
	"testing"
)

// A push is noticed on disk: who syncs then, and how, is the Requester's.
func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{join .Imports "\n"}}`, ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for _, dep := range strings.Fields(string(out)) {
		for _, other := range []string{"github.com/tranche-dev/tranche/", "github.com/go-git/", "sigs.k8s.io/controller-runtime", "k8s.io/client-go"} {
			if strings.HasPrefix(dep, other) {
				t.Errorf("refwatch imports %s: it watches folders, and needs neither Git nor a cluster", dep)
			}
		}
	}
}
