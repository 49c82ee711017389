package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// goFile is a Go file of the repository.
type goFile struct {
	path   string // in the repository, with slashes
	syntax *ast.File
	set    *token.FileSet
}

// goFiles returns the Go files that a person writes: no testdata and no generated file.
func goFiles(t *testing.T) []goFile {
	t.Helper()
	var files []goFile
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "bin" || name == "testdata"):
			return filepath.SkipDir
		case entry.IsDir() || filepath.Ext(name) != ".go":
			return nil
		}
		set := token.NewFileSet()
		syntax, err := parser.ParseFile(set, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		inside := strings.TrimPrefix(filepath.ToSlash(path), root+"/")
		if !ast.IsGenerated(syntax) {
			files = append(files, goFile{inside, syntax, set})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 400 {
		t.Errorf("only %d Go files were found", len(files))
	}
	return files
}

func (f goFile) line(at token.Pos) int { return f.set.Position(at).Line }

var (
	// directive is a comment for a program: of Go, a linter or a generator.
	directive = regexp.MustCompile(`^//[a-z0-9]+:[a-z0-9]`)
	// marker is a line for the generators of the API.
	marker = regexp.MustCompile(`(?m)^\+.*$`)
)

// commentText returns the text of a group of comments, with a line for each of its lines.
func commentText(group *ast.CommentGroup) string {
	var lines []string
	for _, comment := range group.List {
		text := comment.Text
		switch {
		case directive.MatchString(text):
			text = ""
		case strings.HasPrefix(text, "//"):
			text = strings.TrimPrefix(text[2:], " ")
		default:
			text = strings.TrimSuffix(text[2:], "*/")
		}
		lines = append(lines, text)
	}
	return strings.ReplaceAll(strings.Join(lines, "\n"), "\t", "    ")
}

// documented returns the name that each doc comment begins with.
func documented(file *ast.File) map[*ast.CommentGroup]string {
	names := map[*ast.CommentGroup]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch d := n.(type) {
		case *ast.FuncDecl:
			names[d.Doc] = d.Name.Name
		case *ast.TypeSpec:
			names[d.Doc] = d.Name.Name
		case *ast.Field:
			if len(d.Names) > 0 {
				names[d.Doc] = d.Names[0].Name
			}
		}
		return true
	})
	return names
}

// commentProblems returns what is wrong with the comments of a file, with the lines.
func commentProblems(f goFile) []string {
	var found []string
	names := documented(f.syntax)
	for _, group := range f.syntax.Comments {
		at, text := f.line(group.Pos()), commentText(group)
		if name := names[group]; name == "Of" || name == "Where" { // the subject of its doc comment
			text = "It" + strings.TrimPrefix(text, name)
		}
		for _, m := range marker.FindAllString(text, -1) {
			for _, problem := range rejectedWords(m) {
				found = append(found, fmt.Sprintf("%s:%d: %s", f.path, at, problem))
			}
		}
		for _, u := range prose(marker.ReplaceAllString(text, "")) {
			for _, problem := range problems(u.text) {
				found = append(found, fmt.Sprintf("%s:%d: %s", f.path, at+u.line-1, problem))
			}
		}
	}
	return found
}

func TestLanguage_Comments(t *testing.T) {
	for _, f := range goFiles(t) {
		for _, problem := range commentProblems(f) {
			t.Error(problem)
		}
	}
}

func TestCommentProblems(t *testing.T) {
	for name, c := range map[string]struct {
		source string
		want   string // empty: no problem
	}{
		"plain":                          {"// A is a number.\nvar A int", ""},
		"a rejected word":                {"// A is a number.\n//\n// It is told.\nvar A int", `a.go:5: "told"`},
		"at the end of a line":           {"var A int // nobody reads it", `a.go:3: "nobody"`},
		"in a block":                     {"/* A is\nanew. */\nvar A int", `a.go:3: "anew"`},
		"across lines":                   {"// A is kept for\n// now.\nvar A int", `a.go:3: "for now"`},
		"a sentence across lines":        {"// A has" + strings.Repeat("\n// words", 24) + ".\nvar A int", "a.go:3: 26 words"},
		"in code":                        {"// A is as here:\n//\n//\tuser: nobody\nvar A int", ""},
		"for a program":                  {"//go:generate told\n//nolint:told\nvar A int", ""},
		"a marker's words are no prose":  {"// A is a number.\n// +x:rule=\"" + strings.Repeat("a || ", 30) + "a\"\nvar A int", ""},
		"a marker's message":             {"// A is a number.\n// +x:message=\"told\"\nvar A int", `a.go:3: "told"`},
		"a name is the subject":          {"// Of returns a number.\nfunc Of() int { return 1 }", ""},
		"a name is the subject, a field": {"type a struct {\n\t// Where it is.\n\tWhere string\n}", ""},
		"no name":                        {"// Of two numbers it is the first.\nfunc F() int { return 1 }", "a.go:3: a sentence begins with Of"},
	} {
		t.Run(name, func(t *testing.T) {
			set := token.NewFileSet()
			syntax, err := parser.ParseFile(set, "a.go", "package a\n\n"+c.source+"\n", parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			got := commentProblems(goFile{"a.go", syntax, set})
			if c.want == "" && len(got) == 0 || len(got) == 1 && c.want != "" && strings.HasPrefix(got[0], c.want) {
				return
			}
			t.Errorf("problems %q, not %q", got, c.want)
		})
	}
}

// literals returns the string literals of a file, and their lines. Names and keys are
// among the messages: none of them needs a rejected word.
func literals(t *testing.T, f goFile) []unit {
	t.Helper()
	var units []unit
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(literal.Value)
		if err != nil {
			t.Fatalf("%s:%d: %v", f.path, f.line(literal.Pos()), err)
		}
		units = append(units, unit{f.line(literal.Pos()), text})
		return true
	})
	return units
}

// Messages are the string literals of the product. Tests name users as Kubernetes does,
// and the embedded cluster has the words of its components.
func TestLanguage_Messages(t *testing.T) {
	for _, f := range goFiles(t) {
		if strings.HasSuffix(f.path, "_test.go") || strings.HasPrefix(f.path, "cmd/devcluster/") {
			continue
		}
		for _, l := range literals(t, f) {
			for _, problem := range rejectedWords(l.text) {
				t.Errorf("%s:%d: %s", f.path, l.line, problem)
			}
		}
	}
}
