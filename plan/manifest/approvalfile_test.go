package manifest_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/plantest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

func TestPutApproval(t *testing.T) {
	const other = "apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: api}\nspec: {revision: aaaaaaaaaa, commit: " +
		"aaaaaaa, step: 3}\n"
	const old = "# said by Ada\napiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: web}\nspec: {revision: aaaaaaaaaa, " +
		"commit: aaaaaaa, step: 0}\n"
	const now = "apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata:\n  name: web\n  namespace: shop\nspec:\n  revision: " +
		"\"5584f4c7df\"\n  commit: \"1234567\"\n  step: 1\n"
	for _, c := range []struct{ because, content, want string }{
		{"a new file", "", now},
		{"a file of its own is replaced", old, now},
		{"the others of a file stay, before it", other + "---\n" + old, other + "---\n" + now},
		{"and after it", old + "---\n" + other, now + "---\n" + other},
		{"a file without it gets it at the end", other, other + "---\n" + now},
		{"whatever the end is", other[:len(other)-1], other + "---\n" + now},
		{"an end marker is no document", other + "...\n" + old, other + "---\n" + now},
		{
			"one of another namespace is another",
			"apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: web, namespace: else}\n",
			"apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: web, namespace: else}\n---\n" + now,
		},
		{"what is no approval stays", "a: {\n", "a: {\n---\n" + now},
	} {
		a := v1alpha1.BatchApproval{Spec: v1alpha1.BatchApprovalSpec{Revision: "5584f4c7df", Commit: "1234567", Step: 1}}
		a.Metadata.Namespace, a.Metadata.Name = "shop", "web"
		got, err := manifest.PutApproval("a.yaml", []byte(c.content), a, "", "shop")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.because, diff)
		}
	}
}

// An approval reads the same whatever its note. Another note is another content of
// the file, and the same note is the same content.
func TestPutApproval_Note(t *testing.T) {
	a := v1alpha1.BatchApproval{Spec: v1alpha1.BatchApprovalSpec{Revision: "5584f4c7df", Commit: "1234567", Step: 1}}
	a.Metadata.Namespace, a.Metadata.Name = "shop", "web"
	for _, file := range []string{"a.yaml", "a.json"} {
		var before []byte
		for _, note := range []string{"", "For the steps 1, 30%, 100%.", "For the steps 1, 40%, 100%."} {
			content, err := manifest.PutApproval(file, before, a, note, "shop")
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Equal(content, before) || !strings.Contains(string(content), note) {
				t.Errorf("%s with note %q is\n%s", file, note, content)
			}
			again, err := manifest.PutApproval(file, content, a, note, "shop")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(content), string(again)); diff != "" {
				t.Errorf("%s with note %q, put again (-want +got):\n%s", file, note, diff)
			}
			read, ps := manifest.ReadApprovals(plantest.Tree(t, map[string]string{"approvals/" + file: string(content)}), "approvals", "shop")
			if len(ps) > 0 || len(read) != 1 || read[0].Spec != a.Spec {
				t.Errorf("%s reads as %+v, %v", file, read, ps)
			}
			before = content
		}
	}
}
