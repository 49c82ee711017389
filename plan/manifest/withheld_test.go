package manifest_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/plantest"
)

// hunter is the value of the Secrets of these tests. No problem may have it, in no encoding.
const hunter = "hunter7"

const (
	hunterSecret  = "apiVersion: v1\nkind: Secret\nmetadata: {name: db}\nstringData: {a: hunter7}\n"
	withHunter    = "resources: [db.yaml]\n"
	replaceHunter = withHunter + "replacements:\n- source: {kind: Secret, name: db, fieldPath: "
	intoConfigMap = "  targets: [{select: {kind: ConfigMap}, fieldPaths: [data.x]}]\n"
	leftOut       = "; run kubectl kustomize in that folder for more, which is left out here: it may have a value of a Secret"
)

// secretRow is a folder apps with a value of a Secret, and the problems of its rendering.
type secretRow struct {
	reason        string
	kustomization string
	files         map[string]string
	want          []string
}

var secretRows = []secretRow{
	{"an inline patch that is no YAML", withHunter + "patches:\n- patch: |-\n    apiVersion: v1\n    kind: Secret\n" +
		"    metadata: {name: db}\n    stringData: {a: hunter7\n", nil,
		[]string{"RenderFailed apps/kustomization.yaml: patches[0]: the patch is no valid YAML: line 4: did not find expected ',' or '}'"}},
	{"an inline patch with a target", withHunter + "patches:\n- target: {kind: Secret, name: db}\n  patch: |-\n" +
		"    stringData: {a: hunter7}\n", nil,
		[]string{"RenderFailed apps/kustomization.yaml: Secret db: patches[0]: the patch is no object with apiVersion, kind and metadata.name, " +
			"and no list of operations"}},
	{"operations that are YAML in brackets", withHunter + "patches: [{target: {kind: Secret}, patch: '[{op: replace, path: " +
		"/data/a, value: hunter7}]'}]\n", nil,
		[]string{"RenderFailed apps/kustomization.yaml: Secret: patches[0]: line 1: the patch is no valid JSON, and a patch that " +
			"begins with [ must be"}},
	{"a patch in a file", withHunter + "patches: [{path: p.yaml}]\n", map[string]string{"p.yaml": "kind: Secret\nstringData: {a: *hunter7}\n"},
		[]string{"RenderFailed apps/p.yaml: the patch is no valid YAML: the document in line 1: a value begins with *, which names no anchor; " +
			"put it in quotes"}},
	{"a patch of a field by a path through text", replaceHunter + "stringData.a.b.c}\n" + intoConfigMap, nil,
		[]string{"RenderFailed apps/kustomization.yaml: Secret db: replacements[0]: source.fieldPath leads through a value that is no " +
			"object" + leftOut}},
	{"an index that is too large", replaceHunter + "stringData.a, options: {delimiter: '.', index: 9}}\n" + intoConfigMap, nil,
		[]string{"RenderFailed apps/kustomization.yaml: Secret db: replacements[0]: source.options.index is out of bounds for the parts that " +
			"the delimiter makes of the value" + leftOut}},
	{"an index for the base64 of a generated Secret", "secretGenerator: [{name: db, literals: [a=hunter7]}]\nreplacements:\n" +
		"- source: {kind: Secret, name: db, fieldPath: data.a, options: {delimiter: '.', index: 9}}\n" + intoConfigMap, nil,
		[]string{"RenderFailed apps/kustomization.yaml: Secret db: replacements[0]: source.options.index is out of bounds for the parts that " +
			"the delimiter makes of the value" + leftOut}},
	{"a field that is not there", replaceHunter + "stringData.b}\n" + intoConfigMap, nil,
		[]string{"RenderFailed apps/kustomization.yaml: Secret db: replacements[0]: source.fieldPath is not in the source" + leftOut}},
	{"several replacements, of which one is wrong", replaceHunter + "stringData.a}\n" + intoConfigMap + "- source: {kind: Secret, " +
		"name: db, fieldPath: stringData.a.b}\n" + intoConfigMap, nil,
		[]string{"RenderFailed apps/kustomization.yaml: replacements: source.fieldPath leads through a value that is no object" + leftOut}},
	{"a strategic merge patch that is no YAML", withHunter + "patchesStrategicMerge:\n- |-\n  apiVersion: v1\n  kind: Secret\n" +
		"  metadata: {name: db}\n  stringData: {a: hunter7\n", nil,
		[]string{"RenderFailed apps/kustomization.yaml: patchesStrategicMerge[0]: the patch is no valid YAML: line 4: did not find " +
			"expected ',' or '}'"}},
	{"a strategic merge patch without a name", withHunter + "patchesStrategicMerge:\n- |-\n  apiVersion: v1\n  kind: Secret\n" +
		"  stringData: {a: hunter7}\n", nil,
		[]string{"RenderFailed apps/kustomization.yaml: patchesStrategicMerge[0]: the patch is no object with apiVersion, kind and " +
			"metadata.name"}},
	{"a strategic merge patch folded to one line", withHunter + "patchesStrategicMerge:\n- >-\n  apiVersion: v1\n  kind: Secret\n" +
		"  stringData:\n  a: hunter7\n", nil,
		[]string{"RenderFailed apps/kustomization.yaml: patchesStrategicMerge[0]: the path: no such file in the repository"}},
	{"a JSON patch that is none", withHunter + "patchesJson6902: [{target: {version: v1, kind: Secret, name: db}, patch: 'hunter7 " +
		"[x'}]\n", nil,
		[]string{"RenderFailed apps/kustomization.yaml: Secret db: patchesJson6902[0]: the patch is no list of operations, each with " +
			"op and path"}},
	{"a JSON patch of a path that is not there", withHunter + "patches: [{target: {kind: Secret}, patch: '[{\"op\": \"replace\", " +
		"\"path\": \"/data/b/hunter7\", \"value\": \"hunter7\"}]'}]\n", nil,
		[]string{"RenderFailed apps/kustomization.yaml: an operation of a JSON patch does not apply, or its path is not there" + leftOut}},
	{"a literal without a key", "secretGenerator: [{name: db, literals: [hunter7nokey, '=hunter7', a=b]}]\n", nil,
		[]string{
			"RenderFailed apps/kustomization.yaml: Secret db: secretGenerator[0].literals[0]: must be key=value",
			"RenderFailed apps/kustomization.yaml: Secret db: secretGenerator[0].literals[1]: must be key=value",
		}},
	{"a literal in a base", "resources: [../base]\n", map[string]string{"../base/kustomization.yaml": "secretGenerator: [{name: " +
		"db, literals: [hunter7]}]\n"},
		[]string{"RenderFailed base/kustomization.yaml: Secret db: secretGenerator[0].literals[0]: must be key=value"}},
	{"a literal among the files", "secretGenerator: [{name: db, files: [a=hunter7], envs: [a=hunter7]}]\n", nil,
		[]string{
			"RenderFailed apps/kustomization.yaml: secretGenerator[0].envs[0]: the path: no such file in the repository",
			"RenderFailed apps/kustomization.yaml: secretGenerator[0].files[0]: the path: no such file in the repository",
		}},
	{"a URL that is a value", "secretGenerator: [{name: db, files: ['a=https://example.org/hunter7']}]\n", nil,
		[]string{"RenderFailed apps/kustomization.yaml: secretGenerator[0].files[0]: the path is outside the repository, and remote " +
			"bases are off; " +
			"commit a copy of it"}},
	{"a URL that is a value, in a plugin", "generators: [g.yaml]\n", map[string]string{"g.yaml": "apiVersion: builtin\n" +
		"kind: SecretGenerator\nmetadata: {name: db}\nfiles: ['a=https://example.org/hunter7']\n"},
		[]string{"RenderFailed apps/g.yaml: secretGenerator: files: the path is outside the repository, and remote bases are off; " +
			"commit a copy of it"}},
	{"a literal without a key, in a plugin", "generators: [g.yaml]\n", map[string]string{"g.yaml": "apiVersion: builtin\n" +
		"kind: SecretGenerator\nmetadata: {name: db}\nliterals: [hunter7]\n"},
		[]string{"RenderFailed apps/kustomization.yaml: a generator has an entry that is no key=value, or a file that is not there" + leftOut}},
	{"a file without a key", "secretGenerator: [{name: db, files: [=hunter7]}]\n", map[string]string{"hunter7": "x"},
		[]string{"RenderFailed apps/kustomization.yaml: a generator has an entry that is no key=value, or a file that is not there" + leftOut}},
	{"a file of variables in another encoding", "secretGenerator: [{name: db, envs: [e]}]\n", map[string]string{"e": "a=hunter7\xff\n"},
		[]string{"RenderFailed apps/kustomization.yaml: a generator has an entry that is no key=value, or a file that is not there" + leftOut}},
	{"a key twice", "secretGenerator: [{name: db, literals: [hunter=7, hunter=8]}]\n", nil,
		[]string{"RenderFailed apps/kustomization.yaml: a generator has a key twice" + leftOut}},
	{"literals that are no list", "secretGenerator: [{name: db, literals: a=hunter7}]\n", nil,
		[]string{"RenderFailed apps/kustomization.yaml: secretGenerator.literals: is of type string, and must be of type []string"}},
	{"a kustomization that is no YAML", "secretGenerator: [{name: db, literals: [*hunter7]}]\n", nil,
		[]string{"RenderFailed apps/kustomization.yaml: the document in line 1: a value begins with *, which names no anchor; put it in quotes"}},
	{"a generator whose name is wrong", "secretGenertor: [{name: db, literals: [*hunter7]}]\n", nil,
		[]string{"RenderFailed apps/kustomization.yaml: the document in line 1: a value begins with *, which names no anchor; put it in quotes"}},
	{"a field that is none", "secretGenerators: [{name: db, literals: [hunter7]}]\n", nil,
		[]string{"RenderFailed apps/kustomization.yaml: secretGenerators: no such field"}},
	{"a manifest in place of its file", "resources:\n- |\n  apiVersion: v1\n  kind: Secret\n  stringData: {a: hunter7}\n", nil,
		[]string{"RenderFailed apps/kustomization.yaml: resources[0]: the path: no such file in the repository"}},
	{"a manifest with an alias", withHunter, map[string]string{"db.yaml": "kind: Secret\nstringData:\n  a: *hunter7\n"},
		[]string{"InvalidManifest apps/db.yaml: the document in line 1: a value begins with *, which names no anchor; put it in quotes"}},
	{"a manifest with a tag", withHunter, map[string]string{"db.yaml": "kind: Secret\nstringData:\n  a: !!int hunter7\n"},
		[]string{"InvalidManifest apps/db.yaml: the document in line 1: a value is not of the type of its tag"}},
	{"a manifest with a template", withHunter, map[string]string{"db.yaml": "kind: Secret\nstringData:\n  a: {{ hunter7 }}\n"},
		[]string{"InvalidManifest apps/db.yaml: the document in line 1: a key is no text; put it in quotes, and a value that begins with {"}},
	{"a manifest without a key", withHunter, map[string]string{"db.yaml": "kind: Secret\nstringData:\n  ~: hunter7\n"},
		[]string{"InvalidManifest apps/db.yaml: the document in line 1: a key is no text; put it in quotes, and a value that begins with {"}},
	{"a manifest in UTF-16", withHunter + "patches: [{target: {name: db}, patch: '[{\"op\": \"remove\", \"path\": \"/x/hunter7\"}]'}]\n",
		map[string]string{"db.yaml": utf16Of("apiVersion: v1\nkind: Secret\nmetadata: {name: db}\n")},
		[]string{"InvalidManifest apps/db.yaml: is UTF-16 or UTF-32, and only the first document of such a file would be read; " +
			"save it as UTF-8"}},
	{"a patch in UTF-16", "resources: [cm.yaml]\npatches: [{path: db.yaml}]\n",
		map[string]string{
			"cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm}\n",
			"db.yaml": utf16Of("apiVersion: v1\nkind: Secret\nmetadata: {name: db}\nstringData: {a: hunter7}\n"),
		},
		[]string{"RenderFailed apps/kustomization.yaml: patches[0]: a patch is of an object that is not there: Secret.v1.[noGrp]/db.[noNs]" +
			leftOut}},
	{"a manifest with text for its metadata", withHunter, map[string]string{"db.yaml": "apiVersion: v1\nkind: Secret\nmetadata: hunter7\n"},
		[]string{"InvalidManifest apps/db.yaml: Secret: metadata: must be an object"}},
	{"a manifest with a time that is none", withHunter, map[string]string{"db.yaml": "apiVersion: v1\nkind: Secret\n" +
		"metadata: {name: db, creationTimestamp: hunter7}\n"},
		[]string{"InvalidManifest apps/db.yaml: Secret db: metadata.creationTimestamp: parsing time"}},
	{"a patch of another type", withHunter + "patches:\n- patch: |-\n    apiVersion: v1\n    kind: Secret\n" +
		"    metadata: {name: db}\n    stringData: [hunter7]\n", nil,
		[]string{"RenderFailed apps/kustomization.yaml: a patch or a path leads through a value of another type" + leftOut}},
	{"a patch of an object that is not there", withHunter + "patches:\n- patch: |-\n    apiVersion: v1\n    kind: Secret\n" +
		"    metadata: {name: d}\n    stringData: {a: hunter7}\n", nil,
		[]string{"RenderFailed apps/kustomization.yaml: patches[0]: a patch is of an object that is not there: " +
			"Secret.v1.[noGrp]/d.[noNs]" + leftOut}},
	{"an empty patch", withHunter + "patches: [{target: {kind: Secret}}]\n", nil,
		[]string{"RenderFailed apps/kustomization.yaml: kustomize cannot render it" + leftOut}},
	{"a patch and its file", withHunter + "patches: [{path: p.yaml, patch: 'a: hunter7'}]\n", map[string]string{"p.yaml": hunterSecret},
		[]string{"RenderFailed apps/kustomization.yaml: kustomize cannot render it" + leftOut}},
	{"an object twice, in a base", "resources: [../base]\n", map[string]string{"../base/kustomization.yaml": "resources: [db.yaml, " +
		"../apps/db.yaml]\n", "../base/db.yaml": hunterSecret},
		[]string{"RenderFailed base/kustomization.yaml: resources: an object is there twice: Secret.v1.[noGrp]/db.[noNs]" + leftOut}},
}

// utf16Of is text as some editors of Windows write it.
func utf16Of(text string) string {
	var b strings.Builder
	b.WriteString("\xff\xfe")
	for _, c := range []byte(text) {
		b.Write([]byte{c, 0})
	}
	return b.String()
}

// No problem of a rendering has a value of a Secret: users see problems who may not read Secrets. It says
// which file and field is wrong all the same.
func TestNoValueOfASecret(t *testing.T) {
	for _, tc := range secretRows {
		t.Run(tc.reason, func(t *testing.T) {
			files := map[string]string{"apps/kustomization.yaml": tc.kustomization, "apps/db.yaml": hunterSecret}
			for name, content := range tc.files {
				if below, ok := strings.CutPrefix(name, "../"); ok {
					files[below] = content
				} else {
					files["apps/"+name] = content
				}
			}
			_, err := manifest.Render(plantest.Tree(t, files), "apps", manifest.RenderOptions{})
			got := plantest.List(err)
			for _, value := range []string{"hunter", base64.StdEncoding.EncodeToString([]byte(hunter))[:6], "104 117"} {
				if strings.Contains(strings.Join(got, "\n"), value) {
					t.Errorf("%q is in %q", value, got)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// kustomize's own words are passed on if nothing that was read may be of a Secret. Names of other kinds and
// fields do not keep them back.
func TestWordsOfKustomize(t *testing.T) {
	for content, want := range map[string]string{
		"patches: [{target: {kind: SealedSecret}, patch: '[{\"op\": \"remove\", \"path\": \"/spec/x\"}]'}]\n": "error in remove for " +
			"path: '/spec/x': " +
			"Unable to remove nonexistent key: x: missing value",
		"replacements:\n- source: {kind: Deployment, fieldPath: metadata.name.x}\n" +
			"  targets: [{select: {kind: SealedSecret}, fieldPaths: [spec]}]\n": "error " +
			"looking up replacement source: wrong node kind: expected MappingNode but got ScalarNode: node contents: web",
	} {
		_, err := manifest.Render(plantest.Tree(t, map[string]string{
			"kustomization.yaml": "resources: [a.yaml]\n" + content,
			"a.yaml": "apiVersion: bitnami.com/v1alpha1\nkind: SealedSecret\nmetadata: {name: db}\nspec: {encryptedData: {a: b}}\n---\n" +
				"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n" +
				"spec: {template: {spec: {volumes: [{name: a, secret: {secretName: db}}], " +
				"containers: [{name: a, envFrom: [{secretRef: {name: db}}], env: [{name: A, valueFrom: {secretKeyRef: {name: db}}}]}]}}}\n",
		}), ".", manifest.RenderOptions{})
		if diff := cmp.Diff([]string{"RenderFailed kustomization.yaml: " + want}, plantest.List(err)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
