package signers

import (
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// Attributes by which git would convert an approval are found wherever git finds them.
func TestConverted(t *testing.T) {
	t.Parallel()
	const file = "deploy/approvals/web.yaml"
	for name, files := range map[string]map[string]string{
		"none":                          {"a": "x"},
		"by extension":                  {".gitattributes": "*.yaml working-tree-encoding=ISO-8859-1\n"},
		"in the folder":                 {"deploy/approvals/.gitattributes": "web.* text working-tree-encoding=ISO-8859-1"},
		"a filter":                      {"deploy/.gitattributes": "approvals/** filter=lfs -text\n"},
		"a macro":                       {".gitattributes": "[attr]wide working-tree-encoding=ISO-8859-1\n* wide\n"},
		"a macro of a macro":            {".gitattributes": "[attr]wide working-tree-encoding=ISO-8859-1\n[attr]more wide\n", "deploy/.gitattributes": "*.yaml more\r\n"},
		"in quotes":                     {".gitattributes": "\"*.\\171aml\" working-tree-encoding=ISO-8859-1\n"},
		"anchored":                      {".gitattributes": "/deploy/*/web.yaml working-tree-encoding=ISO-8859-1\n"},
		"any folder":                    {".gitattributes": "**/web.yaml\tworking-tree-encoding=ISO-8859-1\n"},
		"another folder":                {".gitattributes": "/docs/*.yaml working-tree-encoding=ISO-8859-1\n", "docs/.gitattributes": "* filter=lfs"},
		"another extension":             {".gitattributes": "*.ps1 working-tree-encoding=ISO-8859-1\n*.png filter=lfs diff=lfs merge=lfs -text\nassets/** filter=lfs\n"},
		"a comment":                     {".gitattributes": "# *.yaml working-tree-encoding=ISO-8859-1\n"},
		"unset":                         {".gitattributes": "*.yaml -filter !working-tree-encoding\n"},
		"other attributes":              {".gitattributes": "* text=auto eol=lf ident whitespace=-blank-at-eol\n"},
		"one character, and a class":    {".gitattributes": "we?.[xy]aml filter=x\n"},
		"the folder of approvals alone": {".gitattributes": "deploy/approvals working-tree-encoding=ISO-8859-1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := gittest.NewRepo(t)
			files[file] = "x"
			r.Commit(files)
			s := storeOf(r)
			tree, err := gitobject.TreeHash(s, plumbing.NewHash(r.Head()))
			if err != nil {
				t.Fatal(err)
			}
			got, err := converted(s, tree, file)
			git := r.Git("check-attr", "working-tree-encoding", "filter", "--", file)
			want := strings.Count(git, "unspecified")+strings.Count(git, ": unset") < 2
			if err != nil || (got != "") != want {
				t.Errorf("%q, %v; git says\n%s", got, err, git)
			}
		})
	}
}
