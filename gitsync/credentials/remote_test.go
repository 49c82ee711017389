package credentials

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// A tenant names the repository of another one by a file URL. The controller reads it, and
// pushes nothing unless a flag allows the folder that the URL leads to.
func TestWriteBackToAFileURL(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"own", "others"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../others", filepath.Join(root, "own", "link")); err != nil {
		t.Fatal(err)
	}
	on, notes := v1alpha1.WriteBack{Enabled: true}, v1alpha1.WriteBack{Notes: true}
	review := v1alpha1.WriteBack{Enabled: true, Branch: "review"}
	both := v1alpha1.WriteBack{Enabled: true, Notes: true}
	named := v1alpha1.WriteBack{Author: &v1alpha1.Signature{Name: "Grace"}, Branch: "review"}
	for name, tc := range map[string]struct {
		at    string
		spec  *v1alpha1.WriteBack
		roots []string
		field string // in the refusal; empty: it is allowed
	}{
		"nothing to push":         {at: "others/a.git"},
		"a name for the author":   {at: "others/a.git", spec: &named},
		"write-back":              {at: "others/a.git", spec: &on, field: "spec.writeBack.enabled"},
		"a branch for review":     {at: "others/a.git", spec: &review, field: "spec.writeBack.enabled"},
		"notes":                   {at: "others/a.git", spec: &notes, field: "spec.writeBack.notes"},
		"both":                    {at: "others/a.git", spec: &both, field: "spec.writeBack.enabled"},
		"another folder is open":  {at: "others/a.git", spec: &on, roots: []string{"own"}, field: "spec.writeBack.enabled"},
		"a link in that one":      {at: "own/link/a.git", spec: &notes, roots: []string{"own"}, field: "spec.writeBack.notes"},
		"its folder is open":      {at: "own/a.git", spec: &both, roots: []string{"own"}},
		"a link to it":            {at: "own/link/a.git", spec: &both, roots: []string{"others"}},
		"https":                   {at: "https://git.example.org/a.git", spec: &both},
		"ssh":                     {at: "ssh://git@git.example.org/a.git", spec: &both},
		"a scheme in upper case":  {at: "FILE://" + root + "/others/a.git", spec: &on, field: "spec.writeBack.enabled"},
		"a file URL with a host":  {at: "file://localhost" + root + "/others/a.git", spec: &on, field: "spec.writeBack.enabled"},
		"a percent in the folder": {at: "file://" + root + "/%6fwn/../%6fthers/a.git", spec: &on, roots: []string{"own"}, field: "spec.writeBack.enabled"},
	} {
		t.Run(name, func(t *testing.T) {
			at := tc.at
			if !strings.Contains(at, "://") {
				at = "file://" + root + "/" + at
			}
			o := Access{FileRoots: []string{root}}
			for _, r := range tc.roots {
				o.FileWriteRoots = append(o.FileWriteRoots, filepath.Join(root, r))
			}
			u, err := gitserver.ParseURL(at)
			if err != nil {
				t.Fatal(err)
			}
			got, err := o.repositoryURL(u, tc.spec)
			if tc.field == "" {
				if err != nil {
					t.Fatal(err)
				}
				if to, _ := filepath.EvalSymlinks(root); u.Scheme == "file" && strings.Contains(tc.at, "link") && got.Path != to+"/others/a.git" {
					t.Errorf("the controller would push to %s", got)
				}
				return
			}
			want := tc.field + ": the controller pushes to no repository in the folder of this file URL; remove the field, use https or ssh, or start the controller with --file-write-roots"
			if says := fmt.Sprint(err); says != want {
				t.Errorf("%v, %s; want: %s", got, says, want)
			}
		})
	}
}
