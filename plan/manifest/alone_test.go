package manifest_test

import (
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf16"

	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/plantest"
)

// Two objects in one file are both rendered, or the file is refused with what to do. None is left out,
// however the file is written.
func TestRender_BothOfAFile(t *testing.T) {
	t.Parallel()
	const a, b = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n"
	const first = `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}`
	second := strings.Replace(first, `"a"`, `"b"`, 1)
	const both = ""
	for name, tt := range map[string]struct{ content, plain, kustomized string }{
		"LF":                   {a + "---\n" + b, both, both},
		"CRLF":                 {strings.ReplaceAll(a+"---\n"+b, "\n", "\r\n"), both, both},
		"a comment":            {"# x\n---\n" + a + "--- # y\n" + b, both, both},
		"BOM":                  {"\ufeff" + a + "---\n" + b, both, both},
		"CR":                   {strings.ReplaceAll(a+"---\n"+b, "\n", "\r"), "line feed", "line feed"},
		"CR once":              {a + "\r---\r" + b, "line feed", "line feed"},
		"NEL":                  {a + "\u0085---\u0085" + b, "line feed", "line feed"},
		"line separator":       {a + "\u2028---\n" + b, "line feed", "line feed"},
		"paragraph separator":  {a + "\u2029---\n" + b, "line feed", "line feed"},
		"UTF-16":               {wide(binary.LittleEndian, a+"---\n"+b), "save it as UTF-8", "save it as UTF-8"},
		"UTF-16, big endian":   {wide(binary.BigEndian, a+"---\n"+b), "save it as UTF-8", "save it as UTF-8"},
		"JSON":                 {first + "\n---\n" + second, both, both},
		"JSON in a row":        {first + "\n" + second, "put a line with ---", "put a line with ---"},
		"JSON on a line":       {first + second, "put a line with ---", "put a line with ---"},
		"flow, and then block": {first + "\n" + b, "put a line with ---", "put a line with ---"},
		"indented":             {"  kind: List\n  items: []\n" + b, "put a line with ---", "put a line with ---"},
		"the end of one":       {a + "...\n" + b, both, "put a line with ---"},
		"the end, and a begin": {a + "...\n---\n" + b, both, both},
	} {
		for end, content := range map[string]string{"": tt.content, ", no more line": strings.TrimSuffix(tt.content, "\n")} {
			t.Run(name+end, func(t *testing.T) {
				t.Parallel()
				fsys := plantest.Tree(t, map[string]string{
					"plain/all.yaml": content, "k/all.yaml": content, "k/kustomization.yaml": "resources: [all.yaml]\n",
				})
				renders(t, fsys, "plain", tt.plain, "ConfigMap a, ConfigMap b")
				renders(t, fsys, "k", tt.kustomized, "ConfigMap a, ConfigMap b")
			})
		}
	}
}

// Every resource counts that a kustomization names, or the kustomization is refused.
func TestRender_AllOfAKustomization(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ content, refused string }{
		"one list":                 {"resources: [a.yaml, b.yaml]\n", ""},
		"JSON":                     {`{"resources": ["a.yaml", "b.yaml"]}`, ""},
		"an anchor":                {"x-: &a b.yaml\n", "no such field"},
		"two lists":                {"resources: [a.yaml]\nresources: [b.yaml]\n", `line 2: key "resources" is there twice`},
		"two lists, JSON":          {`{"resources": ["a.yaml"], "resources": ["b.yaml"]}`, `key "resources" is there twice`},
		"other letters":            {"RESOURCES: [a.yaml]\nresources: [b.yaml]\n", `keys "RESOURCES" and "resources"`},
		"other letters alone":      {"Resources: [a.yaml, b.yaml]\n", ""},
		"two documents":            {"resources: [a.yaml]\n---\nresources: [b.yaml]\n", "line 2: a second document"},
		"two documents, with CR":   {"resources: [a.yaml]\r---\rresources: [b.yaml]\r", "line feed"},
		"a second one of comments": {"resources: [a.yaml, b.yaml]\n---\n# no more\n", ""},
		"an entry twice":           {"resources: [a.yaml, b.yaml]\npatches: [{path: a.yaml, path: b.yaml}]\n", `key "path" is there twice`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object := func(name string) string { return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\n" }
			fsys := plantest.Tree(t, map[string]string{"k/kustomization.yaml": tt.content, "k/a.yaml": object("a"), "k/b.yaml": object("b")})
			renders(t, fsys, "k", tt.refused, "ConfigMap a, ConfigMap b")
		})
	}
}

// renders fails unless a folder has the objects, or is refused with the words.
func renders(t *testing.T, fsys filesys.FileSystem, dir, refused, objects string) {
	t.Helper()
	rendered, err := manifest.Render(fsys, dir, manifest.RenderOptions{})
	var names []string
	for _, o := range rendered {
		names = append(names, o.GetKind()+" "+o.GetName())
	}
	switch got := strings.Join(names, ", "); {
	case refused == "" && (err != nil || got != objects):
		t.Errorf("%s: %s, %v; want %s", dir, got, err, objects)
	case refused != "" && (err == nil || !strings.Contains(err.Error(), refused)):
		t.Errorf("%s: %s, %v; want to be refused with %q", dir, got, err, refused)
	}
}

// wide is a text in UTF-16, as some editors write it.
func wide(order binary.AppendByteOrder, text string) string {
	encoded := order.AppendUint16(nil, 0xfeff)
	for _, u := range utf16.Encode([]rune(text)) {
		encoded = order.AppendUint16(encoded, u)
	}
	return string(encoded)
}
