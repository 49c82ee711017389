package manifest_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/plantest"
)

// sealed fails the test where anything is fetched: kustomize clones into
// temporary folders on disk, and afterwards asks the file system for them.
type sealed struct {
	filesys.FileSystem
	t *testing.T
}

func (s sealed) RemoveAll(p string) error {
	s.t.Errorf("kustomize has cloned into %s", p)
	return nil
}

const base = "resources: [../base]\n"

// remoteReferencesRows are the rows of TestRemoteReferences.
var remoteReferencesRows = []struct {
	reason, kustomization, field, shown string
}{
	{"a file", "resources: ['https://example.org/a.yaml']", "resources[0]", "https://example.org/a.yaml"},
	{"a file, in capitals", "resources: ['HTTPS://example.org/a.yaml']", "resources[0]", "HTTPS://example.org/a.yaml"},
	{
		"a field in capitals, which the decoder takes", "RESOURCES: ['https://example.org/a.yaml']", "resources[0]",
		"https://example.org/a.yaml",
	},
	{"a base on GitHub", "resources: ['github.com/org/repo//base?ref=v1']", "resources[0]", "github.com/org/repo//base?ref=v1"},
	{"GitHub by way of ssh", "bases: ['git@github.com:org/repo']", "bases[0]", "git@github.com:org/repo"},
	{"scp style", base + "components: ['git@git.example.org:org/repo.git']", "components[0]", "git@git.example.org:org/repo.git"},
	{"git::", base + "components: ['git::https://git.example.org/org/repo']", "components[0]", "git::https://git.example.org/org/repo"},
	{
		"Git:: in other letters, ssh", "resources: ['Git::ssh://git.example.org/org/repo']", "resources[0]",
		"Git::ssh://git.example.org/org/repo",
	},
	{"a repository on the controller's own disk", "resources: ['file:///srv/repo']", "resources[0]", "file:///srv/repo"},
	{"a password is not shown", "resources: ['https://user:secret@example.org/org/repo']", "resources[0]", "https://example.org/org/repo"},
	{
		"a generated file", base + "configMapGenerator: [{name: x, files: ['a=https://example.org/a']}]",
		"configMapGenerator[0].files[0]", "https://example.org/a",
	},
	{
		"generated variables", base + "secretGenerator: [{name: x, envs: ['https://example.org/a']}]",
		"secretGenerator[0].envs[0]", "the path",
	},
	{
		"generated variables, the old field", base + "secretGenerator: [{name: x, env: 'https://example.org/a'}]",
		"secretGenerator[0].env", "the path",
	},
	{"a patch", base + "patches: [{path: 'https://example.org/a.yaml'}]", "patches[0].path", "https://example.org/a.yaml"},
	{
		"an old patch", base + "patchesStrategicMerge: ['https://example.org/a.yaml']", "patchesStrategicMerge[0]",
		"https://example.org/a.yaml",
	},
	{
		"an old JSON patch", base + "patchesJson6902: [{target: {kind: X}, path: 'https://example.org/a.yaml'}]",
		"patchesJson6902[0].path", "https://example.org/a.yaml",
	},
	{"a replacement", base + "replacements: [{path: 'https://example.org/a.yaml'}]", "replacements[0].path", "https://example.org/a.yaml"},
	{"a schema", base + "openapi: {path: 'https://example.org/openapi.json'}", "openapi.path", "https://example.org/openapi.json"},
	{"CRDs", base + "crds: ['https://example.org/a.json']", "crds[0]", "https://example.org/a.json"},
	{"configurations", base + "configurations: ['https://example.org/a.yaml']", "configurations[0]", "https://example.org/a.yaml"},
	{"a transformer from elsewhere", base + "transformers: ['https://example.org/a.yaml']", "transformers[0]", "https://example.org/a.yaml"},
	{
		"a transformer here that reads from elsewhere",
		base +
			"transformers:\n- |-\n  apiVersion: builtin\n  kind: PatchTransformer\n  metadata: {name: x}\n  Path: https://example.org/a.yaml\n",
		"transformers[0]: Path", "https://example.org/a.yaml",
	},
	{
		"a generator with an alias",
		base + "generators:\n- |-\n  apiVersion: builtin\n  kind: ConfigMapGenerator\n  metadata: {name: x, annotations: {a: &u " +
			"'https://example.org/a'}}\n  files: [*u]\n",
		"generators[0]: files", "https://example.org/a",
	},
}

func TestRemoteReferences(t *testing.T) {
	t.Setenv("PATH", "") // no git
	for _, tc := range remoteReferencesRows {
		t.Run(tc.reason, func(t *testing.T) {
			fsys := sealed{plantest.Tree(t, map[string]string{
				"apps/kustomization.yaml": tc.kustomization + "\n",
				"over/kustomization.yaml": "resources: [../apps]\n",
				"base/kustomization.yaml": "configMapGenerator: [{name: base, literals: ['url=https://example.org']}]\n",
			}), t}
			_, err := manifest.Render(fsys, "over", manifest.RenderOptions{})
			want := []string{
				"RenderFailed apps/kustomization.yaml: " + tc.field + ": " + tc.shown +
					" is outside the repository, and remote bases are off; commit a copy of it",
			}
			if diff := cmp.Diff(want, plantest.List(err)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
	t.Run("a local path is none", func(t *testing.T) {
		for _, p := range []string{"../base", "a@b", "https", "github.company/x", "http-server/deploy.yaml"} {
			_, err := manifest.Render(plantest.Tree(t, map[string]string{"apps/kustomization.yaml": "resources: ['" + p + "']\n"}), "apps",
				manifest.RenderOptions{})
			if err == nil || strings.Contains(err.Error(), "outside") {
				t.Errorf("%s: got %v, want that it is not there", p, err)
			}
		}
	})
	t.Run("remote bases on do not open the controller's disk", func(t *testing.T) {
		_, err := manifest.Render(plantest.Tree(t, map[string]string{"apps/kustomization.yaml": "resources: ['file:///srv/repo']\n"}), "apps",
			manifest.RenderOptions{Bases: map[manifest.RemoteBase]string{}})
		want := []string{
			"RenderFailed apps/kustomization.yaml: resources[0]: file:///srv/repo is not fetched: only https and http are; commit a copy of it",
		}
		if diff := cmp.Diff(want, plantest.List(err)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

const web = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n"

// problemsOfKustomizationsRows are the rows of TestProblemsOfKustomizations.
var problemsOfKustomizationsRows = []struct {
	reason string
	files  map[string]string
	want   []string
}{
	{"charts", map[string]string{"apps/kustomization.yaml": "helmCharts: [{name: x, repo: 'https://example.org'}]\n"},
		[]string{
			"RenderFailed apps/kustomization.yaml: helmCharts: charts are not rendered, since that needs helm and the network; render the chart " +
				"in CI and commit the result",
		}},
	{"charts by way of a generator", map[string]string{
		"apps/kustomization.yaml": "generators: [g.yaml]\n",
		"apps/g.yaml":             "apiVersion: builtin\nkind: HelmChartInflationGenerator\nmetadata: {name: x}\nname: x\n",
	},
		[]string{
			"RenderFailed apps/g.yaml: charts are not rendered, since that needs helm and the network; render the chart in CI and commit the result",
		}},
	{"charts in the field that was before", map[string]string{"apps/kustomization.yaml": "helmChartInflationGenerator: [{chartName: x}]\n"},
		[]string{
			"RenderFailed apps/kustomization.yaml: helmCharts: charts are not rendered, since that needs helm and the network; render the chart " +
				"in CI and commit the result",
		}},
	{"a plugin that validates", map[string]string{
		"apps/kustomization.yaml": "validators: [v.yaml]\n",
		"apps/v.yaml":             "apiVersion: example.org/v1\nkind: Check\nmetadata: {name: x}\n",
	},
		[]string{"RenderFailed apps/v.yaml: plugin Check: only kustomize's own plugins run; render what it makes in CI and commit the result"}},
	{"a plugin by way of a folder", map[string]string{
		"apps/kustomization.yaml": "generators: [../made]\n", "made/kustomization.yaml": "resources: [g.yaml]\n",
		"made/g.yaml": "apiVersion: example.org/v1\nkind: Exec\nmetadata: {name: x}\n",
	},
		[]string{"RenderFailed made/g.yaml: plugin Exec: only kustomize's own plugins run; render what it makes in CI and commit the result"}},
	{"a plugin", map[string]string{
		"apps/kustomization.yaml": "transformers: [t.yaml]\n",
		"apps/t.yaml":             "apiVersion: example.org/v1\nkind: Sops\nmetadata: {name: x}\n",
	},
		[]string{"RenderFailed apps/t.yaml: plugin Sops: only kustomize's own plugins run; render what it makes in CI and commit the result"}},
	{"a function, which would be a container", map[string]string{
		"apps/kustomization.yaml": "transformers:\n- |-\n  apiVersion: example.org/v1\n  kind: Fn\n  metadata:\n    name: x\n    annotations: " +
			"{config.kubernetes.io/function: 'container: {image: x}'}\n",
	},
		[]string{
			"RenderFailed apps/kustomization.yaml: transformers[0]: plugin Fn: only kustomize's own plugins run; render what it makes in CI and " +
				"commit the result",
		}},
	{"a list for a plugin", map[string]string{
		"apps/kustomization.yaml": "generators: [g.yaml]\ntransformers: [\"[a]\\n\"]\n", "apps/g.yaml": "- a\n",
	}, []string{
		"RenderFailed apps/g.yaml: the configuration of a plugin is no object; write it as apiVersion, kind and metadata.name with the " +
			"plugin's fields",
		"RenderFailed apps/kustomization.yaml: transformers[0]: the configuration of a plugin is no object; write it as apiVersion, kind and " +
			"metadata.name with the plugin's fields",
	}},
	{"files that are not there, all of them, in a base", map[string]string{
		"apps/kustomization.yaml": "resources: [../base]\n",
		"base/kustomization.yaml": "resources: [web.yaml, gone.yaml]\npatches: [{path: patch.yaml}]\n", "base/web.yaml": web,
	}, []string{
		"RenderFailed base/kustomization.yaml: patches[0].path: patch.yaml: no such file in the repository",
		"RenderFailed base/kustomization.yaml: resources[1]: gone.yaml: no such file in the repository",
	}},
	{"a folder without a kustomization", map[string]string{"apps/kustomization.yaml": "resources: [../base]\n", "base/web.yaml": web},
		[]string{
			"RenderFailed apps/kustomization.yaml: resources[0]: ../base: no kustomization in this folder; name its files one by one, or add a " +
				"kustomization.yaml there",
		}},
	{"a syntax error", map[string]string{"apps/kustomization.yaml": "resources: [web.yaml]\n", "apps/web.yaml": web + "---\na: [b\n"},
		[]string{"InvalidManifest apps/web.yaml: line 5: did not find expected ',' or ']'"}},
	{"a key that is there twice", map[string]string{
		"apps/kustomization.yaml": "resources: [web.yaml]\n", "apps/web.yaml": web + "data: {a: b, a: c}\n",
	},
		[]string{`InvalidManifest apps/web.yaml: line 4: key "a" is there twice`}},
	{"an object without a name", map[string]string{
		"apps/kustomization.yaml": "resources: [web.yaml]\n", "apps/web.yaml": "apiVersion: v1\nkind: ConfigMap\n",
	},
		[]string{"InvalidManifest apps/web.yaml: ConfigMap: metadata.name: must be set"}},
	{"a field that kustomize does not know", map[string]string{"apps/kustomization.yaml": "resource: [web.yaml]\n"},
		[]string{"RenderFailed apps/kustomization.yaml: resource: no such field"}},
	{"the kustomization of a base that does not parse", map[string]string{
		"apps/kustomization.yaml": "resources: [../base]\n", "base/kustomization.yaml": "resources: [\n",
	},
		[]string{"RenderFailed base/kustomization.yaml: line 1: did not find expected node content"}},
	{"two kustomizations in one folder", map[string]string{
		"apps/kustomization.yaml": "resources: []\n", "apps/kustomization.yml": "resources: []\n",
	},
		[]string{"RenderFailed apps: Found multiple kustomization files under: /apps"}},
	{"a patch that fits nothing", map[string]string{
		"apps/kustomization.yaml": "resources: [web.yaml]\npatches: [{patch: '[{\"op\": \"remove\", \"path\": \"/data\"}]', target: {kind: " +
			"ConfigMap}}]\n",
		"apps/web.yaml": web,
	},
		[]string{
			"RenderFailed apps/kustomization.yaml: error in remove for path: '/data': Unable to remove nonexistent key: data: missing value",
		}},
	{"a patch that would fit only because we track origins", map[string]string{
		"apps/kustomization.yaml": "resources: [web.yaml]\npatches: [{patch: '[{\"op\": \"remove\", \"path\": " +
			"\"/metadata/annotations/config.kubernetes.io~1origin\"}]', target: {kind: ConfigMap}}]\n",
		"apps/web.yaml": web,
	},
		[]string{
			"RenderFailed apps/kustomization.yaml: error in remove for path: '/metadata/annotations/config.kubernetes.io~1origin': Unable to " +
				"remove nonexistent key: config.kubernetes.io/origin: missing value",
		}},
	{"a base above", map[string]string{"apps/kustomization.yaml": "resources: [sub]\n", "apps/sub/kustomization.yaml": "resources: [..]\n"},
		[]string{"RenderFailed apps/kustomization.yaml: cycle detected: candidate root '/apps' contains visited root 'sub'"}},
	{"a schema that is none", map[string]string{
		"apps/kustomization.yaml": "resources: [web.yaml]\nopenapi: {path: s.json}\npatches: [{patch: '{apiVersion: v1, kind: ConfigMap, " +
			"metadata: {name: web}, data: {a: b}}'}]\n",
		"apps/web.yaml": web, "apps/s.json": "{]",
	},
		[]string{
			"RenderFailed apps/kustomization.yaml: kustomize panicked: invalid schema file: jsontext: invalid character ']' at start of value " +
				"after offset 1",
		}},
}

func TestProblemsOfKustomizations(t *testing.T) {
	for _, tc := range problemsOfKustomizationsRows {
		t.Run(tc.reason, func(t *testing.T) {
			_, err := manifest.Render(plantest.Tree(t, tc.files), "apps", manifest.RenderOptions{})
			if diff := cmp.Diff(tc.want, plantest.List(err)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// The file that docs/batchrelease.md has for a kustomization with a prefix lets the plan
// name the renamed Deployment.
func TestRenamedDeployment(t *testing.T) {
	docs, err := os.ReadFile("../../docs/batchrelease.md")
	if err != nil {
		t.Fatal(err)
	}
	_, names, _ := strings.Cut(string(docs), "```yaml\nnameReference:")
	names, _, _ = strings.Cut(names, "```")
	objects, err := manifest.Render(plantest.Tree(t, map[string]string{
		"base/kustomization.yaml": "resources: [web.yaml, plan.yaml]\n",
		"base/web.yaml":           "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n",
		"base/plan.yaml": "apiVersion: tranche.dev/v1alpha1\nkind: BatchRelease\n" +
			"metadata: {name: web}\nspec: {workloadRef: {name: web}}\n",
		"prod/kustomization.yaml": base + "namePrefix: prod-\nconfigurations: [names.yaml]\n",
		"prod/names.yaml":         "nameReference:" + names,
	}), "prod", manifest.RenderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range objects {
		name, _, _ := unstructured.NestedString(o.Object, "spec", "workloadRef", "name")
		got = append(got, o.GetKind()+" "+o.GetName()+" "+name)
	}
	want := []string{"Deployment prod-web ", "BatchRelease prod-web prod-web"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
