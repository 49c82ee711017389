package docs_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// The sizes above which a reader loses the thread.
const (
	maxPackage    = 2500 // lines without tests and generated files
	maxMethods    = 25   // of a type
	maxFunction   = 65   // lines
	maxComplexity = 15   // 1, and 1 for each branch, loop, case, && and ||
	maxColumns    = 140  // of a line
)

// aboveFile lists what is above these sizes, and how far.
const aboveFile = "testdata/structure.txt"

var shrink = flag.Bool("shrink", false, "write to "+aboveFile+" what has come down")

// sizes are the numbers that are above their limit, by measure and place.
type sizes map[string]int

func (s sizes) note(n, limit int, measure, place string) {
	if n > limit {
		s[measure+" "+place] = max(n, s[measure+" "+place])
	}
}

// receiver returns the type that a function is a method of; empty for none.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	name := ""
	ast.Inspect(f.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name
		}
		return name == ""
	})
	return name
}

// complexity returns the cyclomatic complexity of a function, with those inside it.
func complexity(f *ast.FuncDecl) int {
	n := 1
	ast.Inspect(f, func(node ast.Node) bool {
		switch x := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			if x.List != nil {
				n++
			}
		case *ast.CommClause:
			if x.Comm != nil {
				n++
			}
		case *ast.BinaryExpr:
			if x.Op == token.LAND || x.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}

// longLines returns how many lines are above the limit. A marker of the API has to stand
// on one line.
func longLines(source []byte) int {
	n := 0
	for line := range bytes.Lines(source) {
		marker := bytes.HasPrefix(bytes.TrimSpace(line), []byte("// +"))
		if !marker && utf8.RuneCount(bytes.TrimRight(line, "\n")) > maxColumns {
			n++
		}
	}
	return n
}

// measured sums over files.
type measured struct {
	lines   map[string]int // of a package
	methods map[string]int // of a type
	long    map[string]int // lines of a package, or of its tests
	above   sizes
}

// add measures a file.
func (m *measured) add(f goFile, source []byte) {
	place := path.Dir(f.path)
	if strings.HasSuffix(f.path, "_test.go") {
		place += "/*_test.go"
	} else {
		m.lines[place] += bytes.Count(source, []byte("\n"))
	}
	m.long[place] += longLines(source)
	for _, d := range f.syntax.Decls {
		function, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		name := function.Name.Name
		if r := receiver(function); r != "" {
			name = r + "." + name
			m.methods[place+" "+r]++
		}
		m.above.note(f.line(function.End())-f.line(function.Pos())+1, maxFunction, "function-lines", place+" "+name)
		m.above.note(complexity(function), maxComplexity, "complexity", place+" "+name)
	}
}

// sum returns what is above the limits.
func (m *measured) sum() sizes {
	for place, n := range m.lines {
		m.above.note(n, maxPackage, "package-lines", place)
	}
	for place, n := range m.methods {
		m.above.note(n, maxMethods, "type-methods", place)
	}
	for place, n := range m.long {
		m.above.note(n, 0, "long-lines", place)
	}
	return m.above
}

func newMeasured() *measured {
	return &measured{map[string]int{}, map[string]int{}, map[string]int{}, sizes{}}
}

// readSizes reads rows of a measure, a place and a number.
func readSizes(t *testing.T, text string) sizes {
	t.Helper()
	listed := sizes{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		i := strings.LastIndex(line, " ")
		n, err := strconv.Atoi(line[i+1:])
		if err != nil {
			t.Fatalf("reading %s: %v", aboveFile, err)
		}
		listed[line[:i]] = n
	}
	return listed
}

// grown returns what is larger than the list says, and what the list need not say.
func (s sizes) grown(listed sizes) []string {
	var found []string
	for _, key := range slices.Sorted(maps.Keys(s)) {
		switch was, ok := listed[key]; {
		case !ok:
			found = append(found, fmt.Sprintf("%s %d: above the limit; make it smaller", key, s[key]))
		case s[key] > was:
			found = append(found, fmt.Sprintf("%s %d: it was %d; make it smaller", key, s[key], was))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(listed)) {
		if _, ok := s[key]; !ok {
			found = append(found, fmt.Sprintf("%s: no more above the limit; run go test ./docs -run TestStructure -shrink", key))
		}
	}
	return found
}

// The list of what is above a limit gets shorter, and none of its numbers grows.
func TestStructure(t *testing.T) {
	m := newMeasured()
	for _, f := range goFiles(t) {
		source, err := os.ReadFile(filepath.Join(root, f.path))
		if err != nil {
			t.Fatal(err)
		}
		m.add(f, source)
	}
	text, err := os.ReadFile(aboveFile)
	if err != nil {
		t.Fatal(err)
	}
	now, listed := m.sum(), readSizes(t, string(text))
	if *shrink {
		b := bytes.NewBufferString(head(string(text)))
		for _, key := range slices.Sorted(maps.Keys(listed)) {
			if n, ok := now[key]; ok {
				listed[key] = min(n, listed[key])
				fmt.Fprintf(b, "%s %d\n", key, listed[key])
			} else {
				delete(listed, key)
			}
		}
		if err := os.WriteFile(aboveFile, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, problem := range now.grown(listed) {
		t.Error(problem)
	}
}

// head returns the comment that a text begins with.
func head(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			break
		}
		b.WriteString(line)
	}
	return b.String()
}

func TestMeasured(t *testing.T) {
	branches := strings.Repeat("\tif a && b {\n\t\tf()\n\t}\n", 7)
	for name, c := range map[string]struct {
		path, source string
		want         sizes
	}{
		"small":   {"p/a.go", "func f(a, b bool) {\n" + branches + "}", sizes{}},
		"complex": {"p/a.go", "func f(a, b bool) {\n" + branches + "\tfor {\n\t}\n}", sizes{"complexity p f": 16}},
		"complex by a function": {"p/a.go", "func f(a, b bool) {\n" + branches + "\t_ = func() {\n\t\tfor {\n\t\t}\n\t}\n}",
			sizes{"complexity p f": 16}},
		"cases": {"p/a.go", "func f(a int) {\n\tswitch a {\n" + strings.Repeat("\tcase 1:\n", 15) + "\tdefault:\n\t}\n}",
			sizes{"complexity p f": 16}},
		"a long function":        {"p/a.go", "func f() {\n" + strings.Repeat("\n", 64) + "}", sizes{"function-lines p f": 66}},
		"a long method":          {"p/a.go", "func (t *T[E]) f() {\n" + strings.Repeat("\n", 64) + "}", sizes{"function-lines p T.f": 66}},
		"a long test":            {"p/a_test.go", "func f() {\n" + strings.Repeat("\n", 64) + "}", sizes{"function-lines p/*_test.go f": 66}},
		"a long line":            {"p/a.go", "// " + strings.Repeat("é", 138), sizes{"long-lines p": 1}},
		"a line of 140":          {"p/a.go", "// " + strings.Repeat("é", 137), sizes{}},
		"a marker":               {"p/a.go", "// +" + strings.Repeat("a", 140), sizes{}},
		"many methods":           {"p/a.go", strings.Repeat("func (t *T) f() {}\n", 26), sizes{"type-methods p T": 26}},
		"a long package":         {"p/a.go", strings.Repeat("\n", 2500), sizes{"package-lines p": 2503}},
		"the tests of a package": {"p/a_test.go", strings.Repeat("\n", 2500), sizes{}},
	} {
		t.Run(name, func(t *testing.T) {
			set, source := token.NewFileSet(), "package p\n\n"+c.source+"\n"
			syntax, err := parser.ParseFile(set, c.path, source, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			m := newMeasured()
			m.add(goFile{c.path, syntax, set}, []byte(source))
			if diff := cmp.Diff(c.want, m.sum()); diff != "" {
				t.Errorf("above (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSizes_Grown(t *testing.T) {
	listed := readSizes(t, "# a comment\n\ncomplexity p f 20\ncomplexity p g 20\ncomplexity p h 20\n")
	got := sizes{"complexity p f": 20, "complexity p g": 21, "complexity p i": 16}.grown(listed)
	want := []string{
		"complexity p g 21: it was 20; make it smaller",
		"complexity p i 16: above the limit; make it smaller",
		"complexity p h: no more above the limit; run go test ./docs -run TestStructure -shrink",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}
