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
// one: a claim of what a party cannot do is one that is tested.
func TestSecurityClaimsAreTested(t *testing.T) {
	root, err := clustertest.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	defined := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
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
	_, claims, found := strings.Cut(string(text), "\n## What each can do alone\n")
	claims, _, ended := strings.Cut(claims, "\n## ")
	if !found || !ended {
		t.Fatal("docs/security.md has no section “What each can do alone”")
	}
	named, rows := regexp.MustCompile("`(Test\\w+)`"), 0
	for line := range strings.Lines(claims) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| who ") {
			continue
		}
		rows++
		cells := strings.Split(strings.TrimSpace(line), "|")
		tests := named.FindAllStringSubmatch(cells[len(cells)-2], -1)
		if len(tests) == 0 {
			t.Errorf("a row of docs/security.md names no test: %s", line)
		}
		for _, m := range tests {
			if !there[m[1]] {
				t.Errorf("docs/security.md names %s, which does not exist: %s", m[1], line)
			}
		}
	}
	if rows < 20 {
		t.Errorf("%d rows were read", rows)
	}
	for _, m := range named.FindAllStringSubmatch(string(text), -1) {
		if !there[m[1]] {
			t.Errorf("docs/security.md names %s, which does not exist", m[1])
		}
	}
}
