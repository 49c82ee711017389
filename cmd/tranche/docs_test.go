package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/cmd/tranche/analyze"
	"github.com/tranche-dev/tranche/cmd/tranche/diff"
	"github.com/tranche-dev/tranche/cmd/tranche/status"
)

// Each field of the documents of the command line is in docs/output.md, and each field
// that it has in a first column is one. A field that is renamed or new fails the test.
func TestOutputIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/output.md")
	if err != nil {
		t.Fatal(err)
	}
	word := regexp.MustCompile("`([^`]+)`")
	for heading, document := range map[string]any{
		"ReleaseHistory": status.History{}, "EventLog": status.EventLog{}, "Diff": diff.Document{}, "Version": versions{},
		"AnalysisReplay": analyze.Replay{}, "AnalysisOfSame": analyze.Same{},
	} {
		_, section, ok := strings.Cut(string(text), "\n## "+heading+"\n")
		if !ok {
			t.Errorf("docs/output.md has no heading %s", heading)
		}
		section, _, _ = strings.Cut(section, "\n## ")
		said := map[string]bool{}
		for _, m := range word.FindAllStringSubmatch(section, -1) {
			said[m[1][strings.LastIndex(m[1], ".")+1:]] = true
		}
		fields := map[string]bool{}
		jsonFields(reflect.TypeOf(document), fields)
		for field := range fields {
			if !said[field] && field != "apiVersion" && field != "kind" { // of each document
				t.Errorf("docs/output.md: %s lacks the field %s", heading, field)
			}
		}
		for line := range strings.Lines(section) {
			cells := strings.SplitN(line, "|", 3)
			if len(cells) < 3 {
				continue
			}
			for _, m := range word.FindAllStringSubmatch(cells[1], -1) {
				if field := m[1][strings.LastIndex(m[1], ".")+1:]; !fields[field] {
					t.Errorf("docs/output.md: %s has no field %s", heading, field)
				}
			}
		}
	}
}

// jsonFields collects the names of the fields of a type, and of those in them.
func jsonFields(of reflect.Type, into map[string]bool) {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct || of == reflect.TypeFor[metav1.Time]() {
		return
	}
	for f := range of.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			into[name] = true
		}
		jsonFields(f.Type, into)
	}
}

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
