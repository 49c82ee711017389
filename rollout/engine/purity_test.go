package engine

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// inputs are the types that a round reads.
var inputs = map[string]bool{"Facts": true, "Course": true, "Position": true}

// TestInputsAreRead: a function that gets facts, a course or a position assigns nothing to
// them. One that gets the draft may replace the course as a whole, and writes no other part
// of the three than the status. So what is decided on stays the same in a round.
func TestInputsAreRead(t *testing.T) {
	set := token.NewFileSet()
	var paths []string
	for _, pattern := range []string{"*.go", "*/*.go"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, found...)
	}
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	fields := map[string]bool{} // of facts and course
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || spec.Name.Name != "Facts" && spec.Name.Name != "Course" {
				return true
			}
			for _, field := range spec.Type.(*ast.StructType).Fields.List {
				for _, name := range field.Names {
					fields[name.Name] = true
				}
			}
			return false
		})
	}
	for _, whole := range []string{"Observed", "Facts", "Position"} {
		fields[whole] = true
	}
	if !fields["Strategy"] || !fields["Goal"] {
		t.Fatalf("the fields of facts and course are %v", fields)
	}
	for _, file := range files {
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			for name, pointsTo := range pointers(f) {
				input := inputs[pointsTo]
				for _, path := range assigned(f, name) {
					if input || pointsTo == "draft" && path[0] != "Status" && slices.ContainsFunc(path, func(s string) bool { return fields[s] }) {
						t.Errorf("%s: %s assigns to %s of its %s", set.Position(f.Pos()), f.Name.Name, strings.Join(path, "."), pointsTo)
					}
				}
			}
		}
	}
}

// pointers are the receiver and parameters of a function that point to a type, of this
// package or of one below.
func pointers(f *ast.FuncDecl) map[string]string {
	found := map[string]string{}
	fields := f.Type.Params.List
	if f.Recv != nil {
		fields = slices.Concat(f.Recv.List, fields)
	}
	for _, field := range fields {
		star, ok := field.Type.(*ast.StarExpr)
		if !ok {
			continue
		}
		of := star.X
		if below, ok := of.(*ast.SelectorExpr); ok {
			of = below.Sel
		}
		if of, ok := of.(*ast.Ident); ok {
			for _, name := range field.Names {
				found[name.Name] = of.Name
			}
		}
	}
	return found
}

// assigned are the fields of a variable that a function assigns to, each with the fields
// that lead to it.
func assigned(f *ast.FuncDecl, variable string) (paths [][]string) {
	note := func(e ast.Expr) {
		var path []string
		for {
			switch x := e.(type) {
			case *ast.SelectorExpr:
				path = append([]string{x.Sel.Name}, path...)
				if of, ok := x.X.(*ast.Ident); ok && of.Name == variable {
					paths = append(paths, path)
					return
				}
				e = x.X
			case *ast.IndexExpr:
				e = x.X
			case *ast.StarExpr:
				e = x.X
			case *ast.ParenExpr:
				e = x.X
			default:
				return
			}
		}
	}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.AssignStmt:
			for _, to := range x.Lhs {
				note(to)
			}
		case *ast.IncDecStmt:
			note(x.X)
		}
		return true
	})
	return paths
}
