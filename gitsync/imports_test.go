package gitsync

import (
	"os/exec"
	"strings"
	"testing"
)

// A package below gitsync can be read, tested and changed without the reconciler, and
// only the programs in cmd put the reconciler to use.
func TestImports(t *testing.T) {
	const module = "github.com/tranche-dev/tranche/"
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, module+"...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		imports := strings.Fields(line)
		importer, _ := strings.CutPrefix(imports[0], module)
		for _, imported := range imports[1:] {
			if imported == module+"gitsync" && !strings.HasPrefix(importer, "cmd/") {
				t.Errorf("%s imports gitsync: only cmd may, so that the reconciler is not needed to use its parts", importer)
			}
		}
	}
}
