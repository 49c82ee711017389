package plan_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestPurity holds the import rule of doc.go. A plan that can ask the cluster,
// the clock or the repository gives two answers to one commit.
func TestPurity(t *testing.T) {
	const this = "github.com/tranche-dev/tranche/plan"
	forbidden := map[string]string{
		"k8s.io/client-go":                       "plan takes values; who has a client observes and passes on what it saw",
		"sigs.k8s.io/controller-runtime":         "plan is no reconciler",
		"sigs.k8s.io/kustomize":                  "package manifest renders; the engine reads no files",
		"github.com/go-git/go-git":               "plan takes values; that they come from a commit is the business of gitsync",
		"github.com/tranche-dev/tranche/gitsync": "gitsync imports plan",
		"github.com/tranche-dev/tranche/rollout": "rollout imports plan",
	}
	for _, dep := range goList(t, "-deps", "-f", "{{.ImportPath}}") {
		for prefix, reason := range forbidden {
			if dep == prefix || strings.HasPrefix(dep, prefix+"/") {
				t.Errorf("plan depends on %s: %s", dep, reason)
			}
		}
	}
	own := map[string]string{
		"os":   "files come from the file system that is passed in",
		"time": "time is an input",
		"log":  "what is to be said is returned",
		"net":  "nothing is fetched",
	}
	for _, imported := range goList(t, "-f", `{{join .Imports "\n"}}`) {
		if reason, ok := own[imported]; ok {
			t.Errorf("%s imports %s: %s", this, imported, reason)
		}
	}
}

func goList(t *testing.T, args ...string) []string {
	t.Helper()
	out, err := exec.Command("go", append(append([]string{"list"}, args...), ".")...).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return strings.Fields(string(out))
}
