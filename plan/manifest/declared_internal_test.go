package manifest

import (
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// filesOfRows are kustomizations in /app, with the files beside them.
var filesOfRows = []struct {
	reason string
	files  map[string]string
	want   []string // nil: it does not follow from the kustomizations
}{
	{
		"prefix and suffix, a generated object, several objects in a file", map[string]string{
			"/app/kustomization.yaml": "namePrefix: x-\nnameSuffix: -y\nresources: [../base, a.yaml]\n" +
				"configMapGenerator: [{name: web, literals: [a=b]}]\n",
			"/base/kustomization.yml": "resources: [objects.yaml]\nlabels: [{pairs: {a: b}}]\n",
			"/base/objects.yaml":      objectText("Service", "web") + "---\n# nothing\n---\n" + objectText("Service", "web-2"),
			"/app/a.yaml":             objectText("Service", "other"),
		}, []string{"app/kustomization.yaml", "app/a.yaml", "base/objects.yaml", "base/objects.yaml"},
	},
	{
		"a name in the other one, with a prefix that is the difference", map[string]string{
			"/app/kustomization.yaml": "namePrefix: redis-\nresources: [a.yaml, b.yaml]\n",
			"/app/a.yaml":             objectText("Service", "cache"), "/app/b.yaml": objectText("Service", "redis-cache"),
		}, nil,
	},
	{
		"a base that is used twice", map[string]string{
			"/app/kustomization.yaml":     "resources: [one, two]\n",
			"/app/one/kustomization.yaml": "namePrefix: one-\nresources: [../../base]\n",
			"/app/two/kustomization.yaml": "namePrefix: two-\nresources: [../../base]\n",
			"/base/kustomization.yaml":    "resources: [a.yaml]\n", "/base/a.yaml": objectText("Service", "web"),
		}, []string{"base/a.yaml", "base/a.yaml"},
	},
	{
		"a base with two files and a generator, in two namespaces, and a base that it uses", map[string]string{
			"/app/kustomization.yaml":     "resources: [one, two]\n",
			"/app/one/kustomization.yaml": "namespace: one\nresources: [../../base]\n",
			"/app/two/kustomization.yaml": "namespace: two\nresources: [../../base]\n",
			"/base/kustomization.yaml":    "resources: [a.yaml, ../lowest]\nconfigMapGenerator: [{name: web, literals: [a=b]}]\n",
			"/base/a.yaml":                objectText("Service", "web"),
			"/lowest/kustomization.yaml":  "resources: [b.yaml]\n", "/lowest/b.yaml": objectText("Service", "api"),
		}, []string{
			"base/kustomization.yaml", "base/kustomization.yaml",
			"lowest/b.yaml", "base/a.yaml", "lowest/b.yaml", "base/a.yaml",
		},
	},
	{
		"a base that is used twice, with names that are in each other", map[string]string{
			"/app/kustomization.yaml":     "resources: [one, two]\n",
			"/app/one/kustomization.yaml": "namePrefix: a-\nresources: [../../base]\n",
			"/app/two/kustomization.yaml": "namePrefix: b-\nresources: [../../base]\n",
			"/base/kustomization.yaml":    "resources: [a.yaml, b.yaml]\n",
			"/base/a.yaml":                objectText("Service", "a"), "/base/b.yaml": objectText("Service", "b"),
		}, nil,
	},
	{
		"a patch that replaces a name beside another one", map[string]string{
			"/app/kustomization.yaml": "resources: [a.yaml, b.yaml]\n" + renaming("web", "web-3"),
			"/app/a.yaml":             objectText("Service", "web"), "/app/b.yaml": objectText("Service", "web-2"),
		}, []string{"app/b.yaml", "app/a.yaml"},
	},
	{
		"patches that exchange two names", map[string]string{
			"/app/kustomization.yaml": "resources: [a.yaml, b.yaml]\n" + renaming("web", "other") +
				strings.TrimPrefix(renaming("api", "web"), "patches:\n") + strings.TrimPrefix(renaming("other", "api"), "patches:\n"),
			"/app/a.yaml": objectText("Service", "web"), "/app/b.yaml": objectText("Service", "api"),
		}, nil,
	},
	{
		"a patch that replaces the names of a pattern", map[string]string{
			"/app/kustomization.yaml": "resources: [a.yaml, b.yaml]\n" + renaming("web|none", "web-3"),
			"/app/a.yaml":             objectText("Service", "web"), "/app/b.yaml": objectText("Service", "web-2"),
		}, nil,
	},
	{
		"a base that is used twice, without two of its four objects", map[string]string{
			"/app/kustomization.yaml": "resources: [one, two]\n",
			"/app/one/kustomization.yaml": "namePrefix: b-\nresources: [../../base]\n" +
				"patches: [{patch: '{apiVersion: v1, kind: Service, metadata: {name: b}, $patch: delete}'}]\n",
			"/app/two/kustomization.yaml": "namePrefix: c-\nresources: [../../base]\n" +
				"patches: [{patch: '{apiVersion: v1, kind: Service, metadata: {name: b}, $patch: delete}'}]\n",
			"/base/kustomization.yaml": "resources: [a.yaml, b.yaml]\n",
			"/base/a.yaml":             objectText("Service", "a"), "/base/b.yaml": objectText("Service", "b"),
		}, nil,
	},
	{
		"a patch that deletes", map[string]string{
			"/app/kustomization.yaml": "resources: [a.yaml, b.yaml]\n" +
				"patches: [{patch: '{apiVersion: v1, kind: Service, metadata: {name: web}, $patch: delete}'}]\n",
			"/app/a.yaml": objectText("Service", "web"), "/app/b.yaml": objectText("Service", "web-2"),
		}, nil,
	},
	{
		"a patch that exchanges names", map[string]string{
			"/app/kustomization.yaml": "resources: [a.yaml]\npatches:\n- target: {kind: Service}\n  options: {allowNameChange: true}\n" +
				"  patch: |-\n    - {op: replace, path: /metadata/name, value: webs}\n",
			"/app/a.yaml": objectText("Service", "web"),
		}, nil,
	},
	{
		"a generator that adds to the object of a base", map[string]string{
			"/app/kustomization.yaml":  "resources: [../base]\nconfigMapGenerator: [{name: web, behavior: merge, literals: [a=b]}]\n",
			"/base/kustomization.yaml": "configMapGenerator: [{name: web, literals: [c=d]}]\n",
		}, nil,
	},
	{
		"a list", map[string]string{
			"/app/kustomization.yaml": "resources: [a.yaml]\n",
			"/app/a.yaml":             "apiVersion: v1\nkind: ServiceList\nitems: [{apiVersion: v1, kind: Service, metadata: {name: web}}]\n",
		}, nil,
	},
	{
		"a component", map[string]string{
			"/app/kustomization.yaml": "resources: [a.yaml]\ncomponents: [../part]\n", "/app/a.yaml": objectText("Service", "web"),
			"/part/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nresources: [b.yaml]\nnameSuffix: -c\n",
			"/part/b.yaml":             objectText("Deployment", "web"),
		}, []string{"app/a.yaml", "part/b.yaml"},
	},
}

// renaming is a patch that replaces the name of a Service.
func renaming(from, to string) string {
	return "patches:\n- target: {kind: Service, name: " + from + "}\n  options: {allowNameChange: true}\n" +
		"  patch: |-\n    - {op: replace, path: /metadata/name, value: " + to + "}\n"
}

func objectText(kind, name string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: %s\nmetadata: {name: %s}\n", kind, name)
}

// filesBothWays returns the files as they follow from the kustomizations, and as kustomize tracks
// them.
func filesBothWays(t *testing.T, files map[string]string) (followed, tracked []string) {
	t.Helper()
	fsys := filesys.MakeFsInMemory()
	for name, content := range files {
		if err := fsys.WriteFile(name, []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	refs := gather(fsys, "/app", nil)
	m, err := run(fsys, "/app")
	if err != nil {
		t.Fatal(err)
	}
	if found, ok := refs.filesOf(m, "app/kustomization.yaml", nil); ok {
		followed = found
	}
	return followed, trackedFiles(fsys, m, "/app", "app/kustomization.yaml", nil)
}

// The file of each object is that of kustomize's own tracking, or is left to it.
func TestFilesOf(t *testing.T) {
	for _, row := range filesOfRows {
		t.Run(row.reason, func(t *testing.T) {
			followed, tracked := filesBothWays(t, row.files)
			if diff := cmp.Diff(row.want, followed); diff != "" {
				t.Error(diff)
			}
			if row.want != nil && !cmp.Equal(row.want, tracked) {
				t.Errorf("kustomize says %q", tracked)
			}
		})
	}
}

// Random kustomizations, whose names are parts of each other, have the same files in both ways.
func TestFilesOf_Random(t *testing.T) {
	random := rand.New(rand.NewPCG(15, 2))
	names := []string{"a", "b", "a-b", "b-a", "web", "web-a", "a-web"}
	known := 0
	for range 120 {
		files, resources := map[string]string{}, []string{}
		for i := range 1 + random.IntN(4) {
			name, file := names[random.IntN(len(names))], fmt.Sprintf("%d.yaml", i)
			files[path.Join("/base", file)] = objectText([]string{"Service", "ConfigMap"}[random.IntN(2)], name)
			if len(resources) > 0 && random.IntN(4) == 0 || taken(files, path.Join("/base", file)) {
				delete(files, path.Join("/base", file))
				continue
			}
			resources = append(resources, file)
		}
		prefix, suffix := []string{"", "a-", "x-"}[random.IntN(3)], []string{"", "-b"}[random.IntN(2)]
		files["/base/kustomization.yaml"] = fmt.Sprintf("namePrefix: %q\nresources: [%s]\n", prefix, strings.Join(resources, ", "))
		files["/app/kustomization.yaml"] = fmt.Sprintf("nameSuffix: %q\nresources: [../base]\n"+
			"configMapGenerator: [{name: %s-c, literals: [a=b]}]\n",
			suffix, names[random.IntN(len(names))])
		if random.IntN(2) == 0 { // the whole of it twice
			files["/twice/kustomization.yaml"] = files["/app/kustomization.yaml"]
			for _, name := range []string{"one", "two"} {
				files["/app/"+name+"/kustomization.yaml"] = fmt.Sprintf("namespace: %s\nnamePrefix: %q\nresources: [../../twice]\n",
					name, []string{"", "", "b-"}[random.IntN(3)])
			}
			files["/app/kustomization.yaml"] = "resources: [one, two]\n"
		}
		followed, tracked := filesBothWays(t, files)
		if followed == nil {
			continue
		}
		known++
		if !cmp.Equal(followed, tracked) {
			t.Fatalf("%q\nfollowed %q\ntracked  %q", files, followed, tracked)
		}
	}
	if known < 40 {
		t.Errorf("the files of %d of 120 follow from the kustomizations", known)
	}
}

// taken reports whether another file has the same object.
func taken(files map[string]string, file string) bool {
	for name, content := range files {
		if name != file && content == files[file] {
			return true
		}
	}
	return false
}
