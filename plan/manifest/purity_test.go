package manifest_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Files come from the file system that is passed in, and nothing is fetched. Otherwise one
// commit could be rendered to different objects.
func TestPurity(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{join .Imports "\n"}}`, ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	forbidden := []string{
		"os", "os/exec", "time", "log", "net", "net/http", "k8s.io/client-go", "sigs.k8s.io/controller-runtime",
		"github.com/go-git/go-git",
	}
	for _, imported := range strings.Fields(string(out)) {
		if slices.ContainsFunc(forbidden, func(f string) bool {
			return imported == f || strings.Contains(f, ".") && strings.HasPrefix(imported, f+"/")
		}) {
			t.Errorf("manifest imports %s", imported)
		}
	}
}
