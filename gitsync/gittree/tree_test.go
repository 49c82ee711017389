package gittree

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// treeCorpus are the kustomizations in testdata/corpus, each with what it is there for.
var treeCorpus = []struct{ dir, reason string }{
	{"base", "documents, comments, words that YAML 1.1 takes for something else"},
	{"names", "prefix, suffix, namespace and annotations over a base outside"},
	{"labels", "labels with selectors and templates; kustomization.yml"},
	{"images", "a kustomization in JSON that is called Kustomization"},
	{"components", "two components, one of which generates"},
	{"generators", "ConfigMaps and Secrets from files, envs and literals, merged and hashed"},
	{"patches", "strategic and JSON patches; one replaces all annotations, which no tracking must survive"},
	{"legacy", "the deprecated fields"},
	{"replacements", "replacements, one of which creates annotations"},
	{"vars", "vars, and a JSON patch"},
	{"plugins", "kustomize's own plugins, inline, from a file, from a kustomization"},
	{"configurations", "a transformer configuration and custom resources, numbers of all kinds"},
	{"tracked", "the user asks for the tracking of origins himself"},
	{"deep/overlays/prod", "three levels, a link to a folder, a list, sorting"},
	{"linked", "a link to a kustomization with a link to a file"},
	{"openapi", "a schema of its own, which must not be there in the next build"},
	{"behaviours", "generators that merge and replace those of a base; references in env, volumes, projections"},
	{"secrets", "types, bytes that are no text, immutable, one namespace, options for all and for one"},
	{"strategic", "$patch replace and delete, order, null, ports by two keys, two objects in one patch"},
	{"targets", "patches by label, annotation, pattern, group; names and kinds that change; test, copy, move; an object deleted"},
	{"replacing", "replacements with delimiters, rejects, wildcards, indexes, a constant"},
	{"digests", "images with digests, ports, suffixes, in init containers and CronJobs"},
	{"replicas", "replicas of a StatefulSet, and 0"},
	{"nested", "a component in a component, with names"},
	{"namespaces", "the namespace in subjects and webhooks, and a Namespace itself"},
	{"references", "names that other objects refer to, also in a kind that kustomize does not know"},
	{"crds", "a schema of references in custom resources"},
	{"crlf", "lines of Windows"},
	{"bom", "byte order marks"},
	{"unicode", "names of files and values that are not ASCII"},
	{"order-fifo", "the order of the files"},
	{"order-legacy", "an order of the user's own"},
	{"levels/8", "nine kustomizations, one on the other"},
	{"diamond", "two overlays of one base side by side"},
	{"json", "objects and patches in JSON with tabs and escapes"},
	{"yaml", "anchors, large numbers, dates, scalars of all kinds, documents that are empty"},
	{"local", "objects that are for kustomize only, and its annotations in the user's hand"},
	{"builtins", "more of kustomize's own plugins, and a validator"},
	{"lists", "lists of a kind, and an empty one"},
	{"link-file", "links to files and folders outside, and a link to a link"},
	{"plain-listed", "what TestPlainCorpus compares with"},
	{"old-fields", "deprecated fields of labels, images and generators; a generator of nothing"},
}

// TestCorpus renders each kustomization out of a commit and compares with what
// kubectl prints of a checkout, byte for byte.
func TestCorpus(t *testing.T) {
	repo := newCorpusRepo(t)
	commit := repo.Commit("corpus")
	for _, tc := range treeCorpus {
		t.Run(strings.ReplaceAll(tc.dir, "/", "_"), func(t *testing.T) {
			t.Parallel()
			want, err := kubectlKustomize(t, filepath.Join(repo.Dir, tc.dir))
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			tree := openTree(t, repo, commit)
			objects, err := manifest.Render(tree, tc.dir, manifest.RenderOptions{})
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff(want, printed(t, objects)); diff != "" {
				t.Errorf("%s: differs from kubectl kustomize (-kubectl +commit):\n%s", tc.reason, diff)
			}
			for _, o := range objects {
				if !tree.Exists(o.File) || tree.IsDir(o.File) {
					t.Errorf("%s comes from %q, which is no file", o, o.File)
				}
			}
		})
	}
}

// TestCorpusIsWhole: no folder of the corpus is left out of the table.
func TestCorpusIsWhole(t *testing.T) {
	tree := newCorpusRepo(t)
	listed := map[string]bool{"component-probe": true, "component-settings": true} // of others
	for _, tc := range treeCorpus {
		listed[strings.Split(tc.dir, "/")[0]] = true
	}
	entries, err := os.ReadDir(tree.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && !listed[e.Name()] && e.Name() != "links" && e.Name() != "plain" {
			t.Errorf("testdata/corpus/%s is rendered by no test", e.Name())
		}
	}
}

// TestPlainCorpus: a folder of plain YAML is what a kustomization that lists
// its files is.
func TestPlainCorpus(t *testing.T) {
	repo := newCorpusRepo(t)
	want, err := kubectlKustomize(t, filepath.Join(repo.Dir, "plain-listed"))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := manifest.Render(openTree(t, repo, repo.Commit("corpus")), "plain", manifest.RenderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, printed(t, objects)); diff != "" {
		t.Errorf("(-kubectl +commit):\n%s", diff)
	}
}

// Render refuses what kubectl refuses, with an error that names the file. A case for
// which kubectl would need the network is not compared with it.
func TestCorpusOfErrors(t *testing.T) {
	for _, tc := range []struct {
		reason string
		files  map[string]string
		want   string
		alone  bool // kubectl is not asked
	}{
		{reason: "a chart", want: "k/kustomization.yaml: helmCharts: charts are not rendered",
			files: map[string]string{"k/kustomization.yaml": "helmCharts: [{name: x, repo: 'https://example.org'}]\n"}},
		{reason: "a plugin that would be run", want: "k/t.yaml: plugin Exec: only kustomize's own plugins run",
			files: map[string]string{"k/kustomization.yaml": "transformers: [t.yaml]\n", "k/t.yaml": "apiVersion: example.org/v1\nkind: Exec\nmetadata: {name: x, annotations: {config.kubernetes.io/function: 'exec: {path: /bin/true}'}}\n"}},
		{reason: "a base in another repository", alone: true, want: "k/kustomization.yaml: resources[0]: https://git.example.org/x is outside the repository",
			files: map[string]string{"k/kustomization.yaml": "resources: ['https://git.example.org/x']\n"}},
		{reason: "no such file", want: "k/kustomization.yaml: resources[0]: gone.yaml: no such file",
			files: map[string]string{"k/kustomization.yaml": "resources: [gone.yaml]\n"}},
		{reason: "a file that is no YAML", want: "b/x.yaml: line 1",
			files: map[string]string{"k/kustomization.yaml": "resources: [../b]\n", "b/kustomization.yaml": "resources: [x.yaml]\n", "b/x.yaml": "a: [\n"}},
		{reason: "the same object twice", want: "may not add resource with an already registered id: ConfigMap.v1.[noGrp]/x.[noNs]",
			files: map[string]string{"k/kustomization.yaml": "resources: [x.yaml, y.yaml]\n", "k/x.yaml": oneConfigMap, "k/y.yaml": oneConfigMap}},
		{reason: "a patch without its object", want: "k/kustomization.yaml: no resource matches strategic merge patch",
			files: map[string]string{"k/kustomization.yaml": "patches: [{path: p.yaml}]\n", "k/p.yaml": oneConfigMap}},
		{reason: "a component that is named as a resource", want: "k/kustomization.yaml",
			files: map[string]string{"k/kustomization.yaml": "resources: [../c]\n", "c/kustomization.yaml": "kind: Component\napiVersion: kustomize.config.k8s.io/v1alpha1\n"}},
		{reason: "a replacement without its source", want: "k/kustomization.yaml: Secret: replacements[0]: source selects no object",
			files: map[string]string{"k/kustomization.yaml": "resources: [x.yaml]\nreplacements: [{source: {kind: Secret}, targets: [{select: {kind: ConfigMap}, fieldPaths: [data.a]}]}]\n", "k/x.yaml": oneConfigMap}},
		{reason: "a merge into nothing", want: "k/kustomization.yaml",
			files: map[string]string{"k/kustomization.yaml": "configMapGenerator: [{name: x, behavior: merge, literals: [a=b]}]\n"}},
		{reason: "a validator that changes something", want: "k/kustomization.yaml: validator shouldn't modify the resource map",
			files: map[string]string{"k/kustomization.yaml": "resources: [x.yaml]\nvalidators:\n- |-\n  apiVersion: builtin\n  kind: PrefixTransformer\n  metadata: {name: x}\n  prefix: a-\n  fieldSpecs: [{path: metadata/name}]\n", "k/x.yaml": oneConfigMap}},
		{reason: "a key that is no string", want: "k/x.yaml: ConfigMap: the key 1 is no text; put it in quotes",
			files: map[string]string{"k/kustomization.yaml": "resources: [x.yaml]\n", "k/x.yaml": oneConfigMap + "data: {1: a}\n"}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			repo := gittest.NewWorktree(t)
			for name, content := range tc.files {
				repo.Write(name, content)
			}
			if !tc.alone {
				if out, err := kubectlKustomize(t, filepath.Join(repo.Dir, "k")); err == nil {
					t.Errorf("kubectl renders it:\n%s", out)
				}
			}
			_, err := manifest.Render(openTree(t, repo, repo.Commit("one")), "k", manifest.RenderOptions{})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want it to say %q", err, tc.want)
			}
		})
	}
}

const oneConfigMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"

// TestCorpusInParallel is for the race detector: kustomize's OpenAPI schema is
// a global variable (G17), and one of the corpus replaces it.
func TestCorpusInParallel(t *testing.T) {
	repo := newCorpusRepo(t)
	commit := repo.Commit("corpus")
	want := map[string]string{}
	for _, tc := range treeCorpus {
		objects, err := manifest.Render(openTree(t, repo, commit), tc.dir, manifest.RenderOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want[tc.dir] = printed(t, objects)
	}
	var group sync.WaitGroup
	for range 2 {
		for _, tc := range treeCorpus {
			tree := openTree(t, repo, commit)
			group.Go(func() {
				objects, err := manifest.Render(tree, tc.dir, manifest.RenderOptions{})
				if err != nil {
					t.Errorf("%s: %v", tc.dir, err)
					return
				}
				if diff := cmp.Diff(want[tc.dir], printed(t, objects)); diff != "" {
					t.Errorf("%s (-alone +in parallel):\n%s", tc.dir, diff)
				}
			})
		}
	}
	group.Wait()
}

func TestOrigins(t *testing.T) {
	repo := newCorpusRepo(t)
	tree := openTree(t, repo, repo.Commit("corpus"))
	got := map[string]string{}
	for _, dir := range []string{"names", "components", "patches", "plugins", "linked"} {
		objects, err := manifest.Render(tree, dir, manifest.RenderOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			got[dir+": "+o.GetKind()+" "+strings.Split(o.GetName(), "-5")[0]] = o.File
		}
	}
	want := map[string]string{
		"names: Deployment pre-web-v2":     "base/deployment.yaml",
		"names: Service pre-web-v2":        "base/service.yaml",
		"names: ConfigMap pre-settings-v2": "base/service.yaml",
		"components: Deployment web":       "base/deployment.yaml",
		"components: Service web":          "base/service.yaml",
		"components: ConfigMap settings":   "base/service.yaml",
		"components: ConfigMap extra":      "component-settings/kustomization.yaml",
		"patches: Deployment web":          "base/deployment.yaml", // a patch takes kustomize's tracking away
		"patches: Service web":             "base/service.yaml",
		"patches: ConfigMap settings":      "base/service.yaml",
		"plugins: Deployment plug-web":     "base/deployment.yaml",
		"plugins: Service plug-web":        "base/service.yaml",
		"plugins: ConfigMap plug-settings": "base/service.yaml",
		"plugins: ConfigMap plug-made":     "plugins/generator.yaml",
		"linked: ConfigMap through-a-link": "links/real/config.yaml",
		"linked: ConfigMap linked-file":    "links/real/kustomization.yaml",
	}
	for k, v := range got { // the hash suffix is kustomize's business
		if strings.Contains(k, "extra-") {
			delete(got, k)
			got["components: ConfigMap extra"] = v
		}
		if strings.Contains(k, "linked-file-") {
			delete(got, k)
			got["linked: ConfigMap linked-file"] = v
		}
		if strings.Contains(k, "made-") {
			delete(got, k)
			got["plugins: ConfigMap plug-made"] = v
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the file of each object (-want +got):\n%s", diff)
	}
}

// TestMissingObject takes objects away from a repository: each time the answer
// must be an error, and never "no such file" or io.EOF (G1).
func TestMissingObject(t *testing.T) {
	for _, tc := range []struct {
		lose, reason string
		use          func(*Tree) error
	}{
		{"HEAD:apps", "a folder that cannot be read is not an absent one", func(f *Tree) error {
			f.Exists("apps/web.yaml")
			return f.Err()
		}},
		{"HEAD:apps", "IsDir has no other way to tell", func(f *Tree) error { f.IsDir("apps/sub"); return f.Err() }},
		{"HEAD:apps", "reading a file in it", func(f *Tree) error { _, err := f.ReadFile("apps/web.yaml"); return err }},
		{"HEAD:apps", "listing it", func(f *Tree) error { _, err := f.ReadDir("apps"); return err }},
		{"HEAD:apps", "walking over it", func(f *Tree) error {
			return f.Walk("/", func(string, fs.FileInfo, error) error { return nil })
		}},
		{"HEAD:apps", "globbing through it", func(f *Tree) error { _, err := f.Glob("apps/*.yaml"); return err }},
		{"HEAD:apps", "rendering it", func(f *Tree) error { _, err := manifest.Render(f, "apps", manifest.RenderOptions{}); return err }},
		{"HEAD:apps", "rendering the root", func(f *Tree) error { _, err := manifest.Render(f, ".", manifest.RenderOptions{}); return err }},
		{"HEAD:apps", "the strict walk", complete},
		{"HEAD:apps", "asking for a blob", func(f *Tree) error { _, _, err := f.Blob("apps/web.yaml"); return err }},
		{"HEAD:apps/sub", "a kustomization that names it", func(f *Tree) error { _, err := manifest.Render(f, "apps", manifest.RenderOptions{}); return err }},
		{"HEAD:apps/web.yaml", "a file that cannot be read", func(f *Tree) error { _, err := f.ReadFile("apps/web.yaml"); return err }},
		{"HEAD:apps/web.yaml", "the strict walk asks for files too", complete},
		{"HEAD:apps/kustomization.yaml", "kustomize takes an unreadable kustomization for none", func(f *Tree) error { _, err := manifest.Render(f, "apps", manifest.RenderOptions{}); return err }},
		{"HEAD:approvals/web.yaml", "an approval", func(f *Tree) error {
			_, ps := manifest.ReadApprovals(f, "approvals", "shop")
			return ps
		}},
	} {
		t.Run(tc.lose+" "+tc.reason, func(t *testing.T) {
			repo := gittest.NewWorktree(t)
			repo.Write("apps/kustomization.yaml", "resources: [web.yaml, sub]\n")
			repo.Write("apps/web.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n")
			repo.Write("apps/sub/kustomization.yaml", "configMapGenerator: [{name: x, literals: [a=b]}]\n")
			repo.Write("approvals/web.yaml", "kind: nothing\n")
			commit := repo.Commit("one")
			bare := repo.Bare()
			repo.Lose(bare, tc.lose)
			tree, err := Open(gittest.Objects(bare), commit)
			if err != nil {
				t.Fatal(err)
			}
			err = tc.use(tree)
			if err == nil || !errors.Is(err, plumbing.ErrObjectNotFound) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, io.EOF) {
				t.Errorf("%s: got %v, want an error that wraps ErrObjectNotFound", tc.reason, err)
			}
			if _, err := tree.ReadDir("/"); err == nil {
				t.Error("the file system must not go on after an error of the storer")
			}
		})
	}
	t.Run("the root", func(t *testing.T) {
		repo := gittest.NewWorktree(t)
		repo.Write("a", "b")
		commit := repo.Commit("one")
		bare := repo.Bare()
		repo.Lose(bare, "HEAD^{tree}")
		if _, err := Open(gittest.Objects(bare), commit); !errors.Is(err, plumbing.ErrObjectNotFound) {
			t.Errorf("a commit without its tree: got %v", err)
		}
		if _, err := Open(gittest.Objects(bare), plumbing.NewHash(strings.Repeat("1", 40))); !errors.Is(err, plumbing.ErrObjectNotFound) {
			t.Errorf("no such commit: got %v", err)
		}
	})
}

func complete(f *Tree) error { return f.Complete(plumbing.ZeroHash) }

func TestTreeFS(t *testing.T) {
	repo := gittest.NewWorktree(t)
	repo.Write("a/one.yaml", "one")
	repo.Write("a/two.json", "two")
	repo.Write("a/.hidden", "h")
	repo.Write("a/b/deep.yaml", "deep")
	repo.Write("big.yaml", strings.Repeat("#", defaultFileSize+1))
	repo.Write("lfs.yaml", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
	repo.Link("to-file", "a/one.yaml")
	repo.Link("to-dir", "a/b")
	repo.Link("a/b/up", "../..")
	repo.Link("out", "../etc/passwd")
	repo.Link("abs", "/etc/passwd")
	repo.Link("loop", "loop")
	repo.Link("dangling", "a/gone")
	repo.Submodule("module")
	tree := openTree(t, repo, repo.Commit("one"))

	for _, tc := range []struct {
		path, want, err, reason string
	}{
		{"a/one.yaml", "one", "", "a path from the root"},
		{"/a/one.yaml", "one", "", "an absolute path"},
		{"./a/../a//one.yaml", "one", "", "a path that is not clean"},
		{"/../../a/one.yaml", "one", "", "above the root is the root"},
		{"to-file", "one", "", "a link to a file"},
		{"to-dir/deep.yaml", "deep", "", "a link to a folder"},
		{"to-dir/up/a/two.json", "two", "", "the parent of a link's folder is that of the folder it leads to"},
		{"none", "", "file does not exist", "no such file"},
		{"a/one.yaml/below", "", "file does not exist", "below a file"},
		{"dangling", "", "file does not exist", "a link to nothing"},
		{"a", "", "is a folder", "a folder is no file"},
		{"out", "", "symbolic link leaves the repository", "a link with too many dots"},
		{"abs", "", "abs: symbolic link leaves the repository", "an absolute link"},
		{"loop", "", "too many symbolic links", "a link to itself"},
		{"module", "", "module is a submodule; submodules are not followed", "a submodule"},
		{"module/kustomization.yaml", "", "module is a submodule; submodules are not followed", "something in a submodule"},
		{"big.yaml", "", "files of more than 8Mi are not read", "a large file"},
		{"lfs.yaml", "", "is a Git LFS pointer", "a pointer is not what the user means to apply"},
	} {
		got, err := tree.ReadFile(tc.path)
		if string(got) != tc.want || !gittest.ErrorSays(err, tc.err) {
			t.Errorf("%s: ReadFile(%q) = %q, %v; want %q, %q", tc.reason, tc.path, got, err, tc.want, tc.err)
		}
		if exists := tree.Exists(tc.path); tc.err == "" && !exists {
			t.Errorf("%s: Exists(%q) = false", tc.reason, tc.path)
		}
	}
	if err := tree.Err(); err != nil {
		t.Errorf("none of this is an error of the storer: %v", err)
	}

	type abs struct{ Dir, File string }
	got := map[string]abs{}
	for _, p := range []string{"/", ".", "a", "to-dir/deep.yaml", "a/one.yaml", "to-dir/up"} {
		dir, file, err := tree.CleanedAbs(p)
		if err != nil {
			t.Errorf("CleanedAbs(%q): %v", p, err)
		}
		got[p] = abs{string(dir), file}
	}
	want := map[string]abs{"/": {"/", ""}, ".": {"/", ""}, "a": {"/a", ""}, "to-dir/deep.yaml": {"/a/b", "deep.yaml"}, "a/one.yaml": {"/a", "one.yaml"}, "to-dir/up": {"/", ""}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("CleanedAbs (-want +got):\n%s", diff)
	}

	globs := map[string][]string{}
	for _, p := range []string{"a/*.yaml", "/a/*", "*/b/d*", "a/.h*", "to-dir/deep.yaml"} {
		found, err := tree.Glob(p)
		if err != nil {
			t.Errorf("Glob(%q): %v", p, err)
		}
		globs[p] = found
	}
	if diff := cmp.Diff(map[string][]string{
		"a/*.yaml": {"a/one.yaml"}, "/a/*": {"/a/b", "/a/one.yaml", "/a/two.json"}, "*/b/d*": {"a/b/deep.yaml"},
		"a/.h*": {"a/.hidden"}, "to-dir/deep.yaml": {"to-dir/deep.yaml"},
	}, globs); diff != "" {
		t.Errorf("Glob (-want +got):\n%s", diff)
	}

	var walked []string
	err := tree.Walk("a", func(p string, info fs.FileInfo, err error) error {
		walked = append(walked, p+" "+info.Mode().String())
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"a drwxr-xr-x", "a/.hidden -rw-r--r--", "a/b drwxr-xr-x", "a/b/deep.yaml -rw-r--r--", "a/b/up Lrwxrwxrwx", "a/one.yaml -rw-r--r--", "a/two.json -rw-r--r--"}, walked); diff != "" {
		t.Errorf("Walk (-want +got):\n%s", diff)
	}

	f, err := tree.Open("to-file")
	if err != nil {
		t.Fatal(err)
	}
	content, _ := io.ReadAll(f)
	info, _ := f.Stat()
	if string(content) != "one" || info.Size() != 3 || info.Name() != "to-file" {
		t.Errorf("Open: %q, %d, %q", content, info.Size(), info.Name())
	}
	_, create := tree.Create("x")
	_, write := f.Write(nil)
	for _, err := range []error{create, write, tree.Mkdir("x"), tree.MkdirAll("x/y"), tree.RemoveAll("a"), tree.WriteFile("x", nil)} {
		if !errors.Is(err, errReadOnly) {
			t.Errorf("a commit cannot be written: got %v", err)
		}
	}
	if h, ok, err := tree.Blob("to-file"); !ok || err != nil || h != plumbing.ComputeHash(plumbing.BlobObject, []byte("one")) {
		t.Errorf("Blob(to-file) = %s, %v, %v", h, ok, err)
	}
	if _, ok, err := tree.Blob("a"); ok || err != nil {
		t.Errorf("Blob of a folder = %v, %v", ok, err)
	}
}

// TestUnchanged: a render depends on what it read, and on nothing else.
func TestUnchanged(t *testing.T) {
	repo := gittest.NewWorktree(t)
	repo.Write("apps/kustomization.yaml", "resources: [../base]\n")
	repo.Write("base/kustomization.yaml", "resources: [web.yaml]\n")
	repo.Write("base/web.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n")
	repo.Write("base/README.md", "one\n")
	repo.Write("plain/one.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n")
	repo.Write("plain/README.md", "one\n")
	repo.Write("plain/approvals/web.yaml", "one\n")
	repo.Write("fresh/one.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n")
	repo.Write("other/a.yaml", "one\n")
	repo.Link("linked", "base")
	repo.Submodule("plain/module")
	start := repo.Commit("start")

	for _, tc := range []struct {
		dir, reason string
		change      func()
		want        bool
	}{
		{"apps", "nothing", func() {}, true},
		{"apps", "elsewhere", func() { repo.Write("other/a.yaml", "two\n") }, true},
		{"apps", "beside, in a folder that a kustomization lists file by file", func() { repo.Write("base/README.md", "two\n") }, true},
		{"apps", "a file that was read", func() { repo.Write("base/web.yaml", "apiVersion: v1\n") }, false},
		{"apps", "a file that was read, by its mode only", func() { repo.Chmod("base/web.yaml") }, true},
		{"apps", "the kustomization", func() { repo.Write("apps/kustomization.yaml", "resources: []\n") }, false},
		{"apps", "a file that was read is gone", func() { repo.Remove("base/web.yaml") }, false},
		{"apps", "a second kustomization, where there was none", func() { repo.Write("base/kustomization.yml", "resources: []\n") }, false},
		{"apps", "a folder where a file was", func() { repo.Remove("base/web.yaml"); repo.Write("base/web.yaml/kustomization.yaml", "") }, false},
		{"linked", "a link that leads elsewhere", func() { repo.Remove("linked"); repo.Link("linked", "apps") }, false},
		{"plain", "a file that is not read", func() { repo.Write("plain/README.md", "two\n") }, true},
		{"plain", "an approval", func() { repo.Write("plain/approvals/web.yaml", "two\n") }, true},
		{"plain", "a file more", func() { repo.Write("plain/two.yaml", "") }, false},
		{"plain", "an approval is gone, the first or last one", func() { repo.Remove("plain/approvals/web.yaml") }, true},
		{"fresh", "an approval comes, the first or last one", func() { repo.Write("fresh/approvals/web.yaml", "one\n") }, true},
		{"fresh", "an approval and a file", func() { repo.Write("fresh/approvals/web.yaml", ""); repo.Write("fresh/two.yaml", "") }, false},
		{"fresh", "a folder of that name elsewhere", func() { repo.Write("fresh/more/approvals/web.yaml", "one\n") }, false},
		{"plain", "a submodule that becomes a file", func() { repo.Remove("plain/module"); repo.Write("plain/module", "") }, false},
		{"plain", "a file that becomes a folder", func() { repo.Remove("plain/one.yaml"); repo.Write("plain/one.yaml/x", "") }, false},
	} {
		t.Run(tc.dir+" "+tc.reason, func(t *testing.T) {
			repo.T = t
			repo.Git("reset", "--hard", "--quiet", start.String())
			before := openTree(t, repo, start)
			before.PassedBy = tc.dir + "/approvals"
			if _, err := manifest.Render(before, tc.dir, manifest.RenderOptions{Skip: tc.dir + "/approvals"}); err != nil {
				t.Fatal(err)
			}
			tc.change()
			after := openTree(t, repo, repo.Commit("change"))
			if got, err := before.Reads().Unchanged(after); err != nil || got != tc.want {
				t.Errorf("%s: Unchanged = %v, %v; want %v", tc.reason, got, err, tc.want)
			}
			// A read does not see a mode, and the differences do not say which name of a folder is new.
			roughly := strings.HasSuffix(tc.reason, "mode only") || strings.HasSuffix(tc.reason, "first or last one")
			if may := mayTouch(t, before, after); may == tc.want && !roughly {
				t.Errorf("%s: MayTouch = %v", tc.reason, may)
			}
			if len(after.Reads()) != 0 {
				t.Errorf("the comparison itself was remembered: %v", after.Reads())
			}
		})
	}
}

// A hole in the other tree is no change.
func TestUnchanged_Hole(t *testing.T) {
	repo := gittest.NewWorktree(t)
	repo.Write("apps/kustomization.yaml", "resources: [../base]\n")
	repo.Write("base/kustomization.yaml", "resources: [web.yaml]\n")
	repo.Write("base/web.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n")
	start := repo.Commit("start")
	bare := repo.Bare()
	before := openTree(t, repo, start)
	if _, err := manifest.Render(before, "apps", manifest.RenderOptions{}); err != nil {
		t.Fatal(err)
	}
	repo.Lose(bare, start.String()+":base")
	after, err := Open(gittest.Objects(bare), start)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := before.Reads().Unchanged(after); !errors.Is(err, plumbing.ErrObjectNotFound) {
		t.Errorf("got %v", err)
	}
}

// mayTouch reports whether what was read of one tree may have another answer in the other.
func mayTouch(t *testing.T, before, after *Tree) bool {
	t.Helper()
	var changes Changes
	if fits, err := changes.Add(after.storer, before.Hash(), after.Hash(), nil); err != nil || !fits {
		t.Fatal(fits, err)
	}
	return changes.MayTouch(before.Reads())
}

// kubectlKustomize is what `kubectl kustomize` prints. Bases may lie outside the
// folder, as they may in a commit.
func kubectlKustomize(t *testing.T, dir string) (string, error) {
	t.Helper()
	root, err := clustertest.Root()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd := exec.Command(filepath.Join(root, "bin", "kubectl"), "kustomize", "--load-restrictor=LoadRestrictionsNone", dir)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("kubectl kustomize: %w: %s", err, stderr.String())
	}
	return string(out), err
}

func printed(t *testing.T, objects []plan.Object) string {
	var b strings.Builder
	for i, o := range objects {
		if i > 0 {
			b.WriteString("---\n")
		}
		out, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Error(err)
		}
		b.Write(out)
	}
	return b.String()
}

// newCorpusRepo has the corpus in its worktree, not committed yet.
func newCorpusRepo(t *testing.T) *gittest.Worktree {
	t.Helper()
	r := gittest.NewWorktree(t)
	if err := os.CopyFS(r.Dir, os.DirFS("testdata/corpus")); err != nil {
		t.Fatal(err)
	}
	return r
}

func openTree(t *testing.T, r *gittest.Worktree, commit plumbing.Hash) *Tree {
	t.Helper()
	tree, err := Open(gittest.Objects(filepath.Join(r.Dir, ".git")), commit)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// A tree that holds itself ten times over, ten levels deep, has ten billion paths. One
// with a thousand levels has a path of as many names.
func TestTreesWithoutEnd(t *testing.T) {
	repo := gittest.NewWorktree(t)
	repo.Write("a.yaml", oneConfigMap)
	repo.Commit("one")
	objects := gittest.Objects(filepath.Join(repo.Dir, ".git"))
	level := func(tree plumbing.Hash, copies int) plumbing.Hash {
		var above object.Tree
		for i := range copies {
			above.Entries = append(above.Entries, object.TreeEntry{Name: fmt.Sprintf("d%d", i), Mode: filemode.Dir, Hash: tree})
		}
		o := objects.NewEncodedObject()
		err := above.Encode(o)
		if err == nil {
			tree, err = objects.SetEncodedObject(o)
		}
		if err != nil {
			t.Fatal(err)
		}
		return tree
	}
	commit := func(copies, levels int) plumbing.Hash {
		tree := plumbing.NewHash(repo.Git("rev-parse", "HEAD^{tree}"))
		for range levels {
			tree = level(tree, copies)
		}
		return plumbing.NewHash(repo.Git("commit-tree", tree.String(), "-m", "deep"))
	}
	wide := openTree(t, repo, commit(10, 10))
	if err := complete(wide); err != nil {
		t.Errorf("the strict walk looks at each tree once: %v", err)
	}
	if _, err := manifest.Render(wide, ".", manifest.RenderOptions{}); err == nil || !IsExceeded(err) || !strings.Contains(err.Error(), "more than 20000 files and folders are read for one commit") {
		t.Errorf("rendering it: %v", err)
	}
	if err := complete(openTree(t, repo, commit(1, maxDepth+2))); !IsExceeded(err) || !strings.Contains(err.Error(), "folders are nested more than 256 deep") {
		t.Errorf("a deep one: %v", err)
	}
}

// A name that looks like that of a manifest in each listing is one, or is refused.
func TestRender_HiddenEnding(t *testing.T) {
	repo := gittest.NewWorktree(t)
	for name, as := range map[string]string{
		"release.yaml ": "release.yaml", "release.y\u200baml": "release.yaml", "release.yaml\u00a0": "release.yaml", "a.JSON\u2063": "a.json",
	} {
		repo.Write("deploy/"+name, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")
		_, err := manifest.Render(openTree(t, repo, repo.Commit("a file")), "deploy", manifest.RenderOptions{})
		if err == nil || !strings.HasSuffix(err.Error(), "or has a space or a hidden character; rename it to "+as) {
			t.Errorf("%q: %v", name, err)
		}
		repo.Remove("deploy/" + name)
	}
}
