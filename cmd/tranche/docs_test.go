package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Every reason that the code can emit is in docs/reasons.md.
func TestReasonsAreDocumented(t *testing.T) {
	docs, err := os.ReadFile("../../docs/reasons.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, dir := range []string{"../../plan", "../../plan/v1alpha1", "../../rollout/engine"} {
		for name, reason := range reasons(t, dir) {
			found++
			if !strings.Contains(string(docs), "`"+reason+"`") {
				t.Errorf("%s: %s is not in docs/reasons.md", name, reason)
			}
		}
	}
	if found == 0 {
		t.Error("no reason was found: is there still a const block of Reason…?")
	}
}

// reasons returns the string constants of a package that are named Reason….
func reasons(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 || !strings.HasPrefix(strings.ToLower(spec.Names[0].Name), "reason") {
				return true
			}
			if lit, ok := spec.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if s, err := strconv.Unquote(lit.Value); err == nil {
					found[file+" "+spec.Names[0].Name] = s
				}
			}
			return true
		})
	}
	return found
}
