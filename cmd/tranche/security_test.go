package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// Each test that docs/security.md names exists, and each row of its second table names
// one. So each claim of what a party cannot do is tested.
func TestSecurityClaimsAreTested(t *testing.T) {
	claimsAreTested(t, "security.md", "What each can do alone", 20)
	claimsAreTested(t, "security.md", "What each measure is tested by", 10)
}

// The same of docs/engine-tests.md.
func TestEngineClaimsAreTested(t *testing.T) {
	claimsAreTested(t, "engine-tests.md", "What must not happen", 20)
	claimsAreTested(t, "engine-tests.md", "What searches for more", 4)
}

// claimsAreTested fails unless each row of a section of a page names tests, which exist.
func claimsAreTested(t *testing.T, page, section string, atLeast int) {
	t.Helper()
	root, err := clustertest.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	there := testsOf(t, root)
	_, claims, found := strings.Cut(string(text), "\n## "+section+"\n")
	claims, _, _ = strings.Cut(claims, "\n## ")
	if !found {
		t.Fatalf("docs/%s has no section “%s”", page, section)
	}
	named, rows := regexp.MustCompile("`(Test\\w+)`"), 0
	for line := range strings.Lines(claims) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| wh") && rows == 0 || strings.HasPrefix(line, "| measure |") { // the head
			continue
		}
		rows++
		tests := named.FindAllStringSubmatch(line, -1)
		if len(tests) == 0 {
			t.Errorf("a row of docs/%s names no test: %s", page, line)
		}
		for _, m := range tests {
			if !there[m[1]] {
				t.Errorf("docs/%s names %s, which does not exist: %s", page, m[1], line)
			}
		}
	}
	if rows < atLeast {
		t.Errorf("%d rows of docs/%s were read", rows, page)
	}
}

// testsOf are the names of all tests of the repository.
func testsOf(t *testing.T, root string) map[string]bool {
	t.Helper()
	there := map[string]bool{}
	defined := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range defined.FindAllSubmatch(source, -1) {
			there[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return there
}
