package charttest

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/action"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

var rewrite = flag.Bool("rewrite", false, "write testdata")

// here is the release that config installs.
func here(values string) Release {
	return Release{Name: "tranche", Namespace: "tranche-system", Values: values}
}

func render(t *testing.T, r Release) Objects {
	t.Helper()
	o, err := Render(Chart(t), r)
	if err != nil {
		t.Fatalf("%+v: %v", r, err)
	}
	return o
}

// kustomized are the objects of a folder of config, by their names. The namespace is Helm's to make.
func kustomized(t *testing.T, folder string) map[string]*unstructured.Unstructured {
	t.Helper()
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(Root(t), "config", folder))
	if err != nil {
		t.Fatal(err)
	}
	text, err := objects.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	list, err := Decode(string(text))
	if err != nil {
		t.Fatal(err)
	}
	named := byName(t, list)
	delete(named, "Namespace/tranche-system")
	folded(named)
	return named
}

// folded makes one space of each line break in policies. Kustomize doubles some when it
// writes a folded text again.
func folded(objects map[string]*unstructured.Unstructured) {
	var fold func(v any) any
	fold = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for k, e := range v {
				v[k] = fold(e)
			}
		case []any:
			for i, e := range v {
				v[i] = fold(e)
			}
		case string:
			return strings.Join(strings.Fields(v), " ")
		}
		return v
	}
	for _, o := range objects {
		if o.GetKind() == "ValidatingAdmissionPolicy" {
			fold(o.Object)
		}
	}
}

func byName(t *testing.T, list []*unstructured.Unstructured) map[string]*unstructured.Unstructured {
	t.Helper()
	named := map[string]*unstructured.Unstructured{}
	for _, o := range list {
		name := o.GetKind() + "/" + o.GetName()
		if named[name] != nil {
			t.Errorf("there are two of %s", name)
		}
		named[name] = o
	}
	return named
}

// plain takes away what only Helm's objects have.
func plain(t *testing.T, list []*unstructured.Unstructured) map[string]*unstructured.Unstructured {
	t.Helper()
	for _, o := range list {
		labels := o.GetLabels()
		for _, l := range []string{"helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/instance", "app.kubernetes.io/version"} {
			if labels[l] == "" {
				t.Errorf("%s/%s has no label %s", o.GetKind(), o.GetName(), l)
			}
			delete(labels, l)
		}
		o.SetLabels(labels)
		annotations := o.GetAnnotations()
		delete(annotations, "helm.sh/resource-policy")
		o.SetAnnotations(annotations)
		for _, field := range []string{"labels", "annotations"} {
			if m, _, _ := unstructured.NestedMap(o.Object, "metadata", field); len(m) == 0 {
				unstructured.RemoveNestedField(o.Object, "metadata", field)
			}
		}
	}
	named := byName(t, list)
	folded(named)
	return named
}

// Kustomize stays the source: with the value rights the chart has the objects of a folder.
func TestObjectsAreThoseOfKustomize(t *testing.T) {
	for _, folder := range []string{"default", "tenants", "cluster-admin"} {
		got := plain(t, render(t, here("rights: "+folder)).Installed)
		if diff := cmp.Diff(kustomized(t, folder), got); diff != "" {
			t.Errorf("config/%s (-kustomize +chart):\n%s", folder, diff)
		}
	}
	always := kustomized(t, "default")
	isOther := func(name string, _ *unstructured.Unstructured) bool { return always[name] != nil }
	got := plain(t, render(t, here("dashboard: {enabled: true, host: tranche.example.org}")).Installed)
	maps.DeleteFunc(got, isOther)
	if diff := cmp.Diff(kustomized(t, "dashboard"), got); diff != "" {
		t.Errorf("config/dashboard (-kustomize +chart):\n%s", diff)
	}
	o := render(t, here("metrics: {serviceMonitor: {enabled: true}, alerts: {enabled: true}, grafanaDashboard: {enabled: true}}"))
	got = plain(t, o.Installed)
	maps.DeleteFunc(got, isOther)
	if diff := cmp.Diff(kustomized(t, "monitoring"), got); diff != "" {
		t.Errorf("config/monitoring (-kustomize +chart):\n%s", diff)
	}
}

// Namespace and account follow the release, in rights and policies alike. The names do not.
func TestObjectsFollowTheRelease(t *testing.T) {
	text := func(objects map[string]*unstructured.Unstructured) string {
		out, err := yaml.Marshal(objects)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	r := Release{Name: "releases", Namespace: "ops", Values: "serviceAccount: {name: releaser}"}
	got := plain(t, render(t, r).Installed)
	want := kustomized(t, "default")
	want["ServiceAccount/releaser"] = want["ServiceAccount/tranche-controller"]
	delete(want, "ServiceAccount/tranche-controller")
	replaced := strings.NewReplacer(
		"system:serviceaccount:tranche-system:tranche-controller", "system:serviceaccount:ops:releaser", "tranche-system", "ops",
		"serviceAccountName: tranche-controller", "serviceAccountName: releaser",
	).Replace(text(want))
	var account map[string]*unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(replaced), &account); err != nil {
		t.Fatal(err)
	}
	account["ServiceAccount/releaser"].SetName("releaser")
	for _, binding := range []string{"ClusterRoleBinding/tranche-controller", "RoleBinding/tranche-leader-election"} {
		account[binding].Object["subjects"].([]any)[0].(map[string]any)["name"] = "releaser"
	}
	if diff := cmp.Diff(text(account), text(got)); diff != "" {
		t.Errorf("(-config +chart):\n%s", diff)
	}
}

// cases are the values that TestValues changes, each from its default.
var cases = []string{
	"image: {repository: registry.example.org:5000/tranche, tag: v1.2.3, pullPolicy: Always}",
	"image: {digest: 'sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef'}",
	"imagePullSecrets: [{name: registry}]",
	"replicas: 0",
	"shards: [b, a]",
	"shards: [a]\npodDisruptionBudget: {enabled: true}",
	"rights: tenants",
	"rights: cluster-admin",
	"defaultServiceAccount: deployer",
	"serviceAccount: {name: releaser}",
	"serviceAccount: {create: false}",
	"serviceAccount: {annotations: {example.org/role: tranche}}",
	"resources: {limits: {memory: null}, requests: {memory: 1Gi}}",
	"storage: {sizeLimit: 1Gi}",
	"fileRoots: [/git, /more]",
	"logLevel: debug",
	"webhook: {enabled: false}",
	"webhook: {service: {type: LoadBalancer, port: 8080, annotations: {example.org/internal: 'true'}}}",
	"webhook: {ingress: {enabled: true, host: tranche.example.org, className: nginx, tlsSecretName: cert, annotations: {a: b}}}",
	"metrics: {serviceMonitor: {enabled: true, labels: {release: prometheus}, interval: 30s}}",
	"metrics: {alerts: {enabled: true, labels: {release: prometheus}}}",
	"metrics: {grafanaDashboard: {enabled: true, labels: {grafana_dashboard: 'yes'}}}",
	"dashboard: {enabled: true, host: tranche.example.org}\nimage: {tag: v1.2.3, pullPolicy: Always}\nimagePullSecrets: [{name: registry}]\n" +
		"nodeSelector: {disk: ssd}\ntolerations: [{key: infra, operator: Exists}]\npriorityClassName: high",
	"dashboard: {enabled: true, host: a.example.org, ingress: {enabled: true, className: nginx, tlsSecretName: cert, annotations: {a: b}}}",
	"notifications: {secretName: receivers}",
	"analysis: {secretName: providers}",
	"networkPolicy: {enabled: false}",
	"podDisruptionBudget: {enabled: true}",
	"priorityClassName: system-cluster-critical",
	"nodeSelector: {disk: ssd}",
	"tolerations: [{key: infra, operator: Exists}]",
	"affinity: {nodeAffinity: {}}",
	"topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]",
	"podAnnotations: {a: b}",
	"podLabels: {team: ops, app.kubernetes.io/name: mine}",
	"extraArgs: [--concurrent=20]",
	"extraEnv: [{name: HTTPS_PROXY, value: 'http://proxy:3128'}]",
	"extraVolumes: [{name: git, hostPath: {path: /git}}]",
	"extraVolumeMounts: [{name: git, mountPath: /git}]",
	"crds: {install: false}",
	"crds: {keep: false}",
	"crds: {install: false, keep: false}",
	"uninstall: {enabled: false}",
	"uninstall: {complete: false, prune: true, timeoutSeconds: 60}",
}

// system is what every cluster has: with it the hooks are rendered.
func system() *unstructured.Unstructured {
	return object("v1", "Namespace", "kube-system")
}

func object(apiVersion, kind, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
	o.SetName(name)
	return o
}

// `helm lint` finds nothing, except that there is no icon.
func TestLint(t *testing.T) {
	for _, values := range []string{"", "rights: tenants\nshards: [a]\nmetrics: {alerts: {enabled: true}}"} {
		given, err := loader.LoadValues(strings.NewReader(values))
		if err != nil {
			t.Fatal(err)
		}
		lint := action.NewLint()
		lint.Strict, lint.Namespace = true, "tranche-system"
		for _, m := range lint.Run([]string{Chart(t)}, given).Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %s", values, m)
			}
		}
	}
}

// Each value changes what it says, and nothing else. testdata/values.txt has the changes.
func TestValues(t *testing.T) {
	flat := func(values string) map[string]string {
		r := here(values)
		r.Live = []*unstructured.Unstructured{system()}
		o := render(t, r)
		return flatten(t, append(o.Installed, o.Hooks...))
	}
	standard := flat("")
	var out strings.Builder
	used := map[string]bool{"commonLabels": true} // by TestCommonLabels
	for _, values := range cases {
		fmt.Fprintf(&out, "== %s\n%s\n", strings.ReplaceAll(values, "\n", "; "), changes(standard, flat(values)))
		given, err := loader.LoadValues(strings.NewReader(values))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names("", given) {
			used[name] = true
		}
	}
	golden(t, "testdata/values.txt", out.String())
	for _, name := range documented(t) {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(used)), func(u string) bool { return u == name || strings.HasPrefix(u, name+".") }) {
			t.Errorf("no case changes the value %s", name)
		}
	}
}

// All objects have them, and no label by which others select is another.
func TestCommonLabels(t *testing.T) {
	r := here("commonLabels: {team: ops, app.kubernetes.io/name: mine}")
	r.Live = []*unstructured.Unstructured{system()}
	o := render(t, r)
	for _, o := range append(o.Installed, o.Hooks...) {
		labels := o.GetLabels()
		if labels["team"] != "ops" {
			t.Errorf("%s/%s has no label team", o.GetKind(), o.GetName())
		}
		if kind := o.GetKind(); (kind == "Deployment" || kind == "Service") && labels["app.kubernetes.io/name"] != "tranche" {
			t.Errorf("%s/%s is called %s", kind, o.GetName(), labels["app.kubernetes.io/name"])
		}
	}
}

// documented are the values of README.md.
func documented(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Chart(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "| `"); ok {
			name, _, _ = strings.Cut(name, "`")
			list = append(list, name)
		}
	}
	if len(list) < 25 {
		t.Fatalf("README.md has %d values", len(list))
	}
	return list
}

// names are the keys of values, with those of maps in them.
func names(prefix string, values map[string]any) []string {
	var list []string
	for k, v := range values {
		list = append(list, prefix+k)
		if m, ok := v.(map[string]any); ok {
			list = append(list, names(prefix+k+".", m)...)
		}
	}
	return list
}

// flatten are the fields of objects, by object and path.
func flatten(t *testing.T, list []*unstructured.Unstructured) map[string]string {
	t.Helper()
	fields := map[string]string{}
	var add func(path string, v any)
	add = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, e := range v {
				add(path+"."+k, e)
			}
			if len(v) == 0 {
				fields[path] = "{}"
			}
		case []any:
			for i, e := range v {
				add(fmt.Sprintf("%s[%d]", path, i), e)
			}
		default:
			text, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			fields[path] = string(text)
		}
	}
	for name, o := range byName(t, list) {
		add(name+" ", o.Object)
	}
	return fields
}

// changes are the fields that differ. A new object is compared with the one of its kind that is called
// tranche-controller.
func changes(from, to map[string]string) string {
	removed, added := map[string]bool{}, map[string]bool{}
	for k := range from {
		object, _, _ := strings.Cut(k, " ")
		if to[object+" .kind"] == "" {
			removed["- "+object] = true
		} else if to[k] != from[k] {
			removed["- "+k+" "+shortened(from[k])] = true
		}
	}
	for k, v := range to {
		object, path, _ := strings.Cut(k, " ")
		kind, _, _ := strings.Cut(object, "/")
		isNew := from[object+" .kind"] == ""
		switch {
		case !isNew && from[k] != v, isNew && from[kind+"/tranche-controller "+path] != v && !noise.MatchString(k):
			added["+ "+k+" "+shortened(v)] = true
		}
	}
	lines := append(slices.Sorted(maps.Keys(removed)), slices.Sorted(maps.Keys(added))...)
	return strings.Join(lines, "\n") + "\n"
}

// noise are fields of new objects that say nothing of a value.
var noise = regexp.MustCompile(` \.(apiVersion|kind)|metadata\.(namespace|name)$|` +
	`PrometheusRule/tranche \.spec|dashboard\.json|\.kubernetes\.io/(instance|version|managed-by)|helm\.sh/chart`)

func shortened(value string) string {
	if len(value) > 200 {
		return value[:200] + "…"
	}
	return value
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got): %s", file, diff)
	}
}

func loadChart(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(Chart(t))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// With helm upgrade --reuse-values a release has the values of its first chart only. A value
// that this chart has added is then at its default.
func TestReuseValues(t *testing.T) {
	r := here("")
	r.Live = []*unstructured.Unstructured{system()}
	want := render(t, r)
	c := loadChart(t)
	clear(c.Values)
	got, err := RenderChart(c, r)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// The schema has the keys of values.yaml, and refuses others and other types.
func TestSchema(t *testing.T) {
	var refused []string
	var walk func(path string, v any, schema map[string]any)
	walk = func(path string, v any, schema map[string]any) {
		m, isMap := v.(map[string]any)
		properties, closed := schema["properties"].(map[string]any)
		if !isMap || !closed {
			refused = append(refused, nested(path, wrong(v)))
			return
		}
		if schema["additionalProperties"] != false {
			t.Errorf("the schema lets unknown keys of %q pass", path)
		}
		refused = append(refused, nested(path+".unknown", "1"))
		got := slices.DeleteFunc(slices.Sorted(maps.Keys(properties)), func(k string) bool {
			return path == "" && (k == "global" || k == "enabled")
		})
		if want := slices.Sorted(maps.Keys(m)); !slices.Equal(got, want) {
			t.Errorf("%q: the schema has %v, values.yaml %v", path, got, want)
		}
		for k, e := range m {
			walk(path+"."+k, e, properties[k].(map[string]any))
		}
	}
	c := loadChart(t)
	var schema map[string]any
	if err := json.Unmarshal(c.Schema, &schema); err != nil {
		t.Fatal(err)
	}
	walk("", c.Values, schema)
	if len(refused) < 60 {
		t.Errorf("only %d values to refuse", len(refused))
	}
	for _, values := range append(refused, "replicas: -1", "rights: root", "image: {tag: 1.2}", "image: {repository: 'tranche:v1'}",
		"image: {digest: v1}", "fileRoots: ['/a,/b']", "shards: [a, a]", "shards: ['a b']", "extraArgs: [concurrent]",
		"defaultServiceAccount: ''", "serviceAccount: {name: \"x'] || true || [\"}", "imagePullSecrets: [registry]",
		"webhook: {service: {port: 0}}") {
		if _, err := Render(Chart(t), here(values)); err == nil || !strings.Contains(err.Error(), "don't meet the specifications of the schema") {
			t.Errorf("%s: %v", values, err)
		}
	}
	render(t, here("global: {a: b}\nenabled: true")) // of a chart that has this one as a dependency
}

// wrong is a value of another type, as YAML.
func wrong(v any) string {
	switch v.(type) {
	case string, bool:
		return "{a: b}"
	case float64, int64:
		return "'3'"
	}
	return "text"
}

func nested(path, value string) string {
	keys := strings.Split(strings.TrimPrefix(path, "."), ".")
	return strings.Join(keys, ": {") + ": " + value + strings.Repeat("}", len(keys)-1)
}

// A release that cannot work is refused before anything is written.
func TestChecks(t *testing.T) {
	binding := func(name, namespace, subject string) *unstructured.Unstructured {
		o := object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "tranche-controller")
		o.Object["subjects"] = []any{map[string]any{"kind": "ServiceAccount", "name": "tranche-controller", "namespace": subject}}
		if name != "" {
			o.SetAnnotations(map[string]string{"meta.helm.sh/release-name": name, "meta.helm.sh/release-namespace": namespace})
		}
		return o
	}
	crd := func(annotations map[string]string) *unstructured.Unstructured {
		o := object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "batchreleases.tranche.dev")
		o.SetAnnotations(annotations)
		return o
	}
	for name, c := range map[string]struct {
		values string
		live   *unstructured.Unstructured
		want   string
	}{
		"the same release": {live: binding("tranche", "tranche-system", "tranche-system")},
		"another release": {
			live: binding("second", "tranche-system", "tranche-system"), want: "installed already, by release second in namespace tranche-system",
		},
		"the same name elsewhere":     {live: binding("tranche", "ops", "ops"), want: "installed already, by release tranche in namespace ops"},
		"kustomize in this namespace": {live: binding("", "", "tranche-system")},
		"kustomize in another namespace": {
			live: binding("", "", "ops"), want: "without Helm. Install the chart with --namespace ops --take-ownership",
		},
		"CRDs of another tool": {values: "crds: {install: false}", live: crd(nil)},
		"CRDs that stay": {values: "crds: {install: false}", live: crd(map[string]string{
			"meta.helm.sh/release-name": "tranche", "helm.sh/resource-policy": "keep",
		})},
		"CRDs that would go": {values: "crds: {install: false}", live: crd(map[string]string{
			"meta.helm.sh/release-name": "tranche",
		}), want: "would delete CustomResourceDefinition batchreleases.tranche.dev"},
		"a flag of the chart":      {values: "extraArgs: [--watch-label-selector=shard=a]", want: "the chart sets --watch-label-selector"},
		"an Ingress of no Service": {values: "webhook: {enabled: false, ingress: {enabled: true, host: a}}", want: "needs webhook.enabled"},
		"a dashboard of no host":   {values: "dashboard: {enabled: true}", want: "needs dashboard.host"},
		"a dashboard by HTTP":      {values: "dashboard: {enabled: true, host: a, ingress: {enabled: true}}", want: "tokens are not for HTTP"},
		"an Ingress of no host":    {values: "webhook: {ingress: {enabled: true}}", want: "needs webhook.ingress.host"},
	} {
		r := here(c.values)
		r.Live = []*unstructured.Unstructured{system()}
		if c.live != nil {
			r.Live = append(r.Live, c.live)
		}
		_, err := Render(Chart(t), r)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// helm template prints hooks beside the objects, and kubectl apply would run them.
func TestHooksAreNoPartOfATemplate(t *testing.T) {
	if o := render(t, here("")); len(o.Hooks) != 0 {
		t.Errorf("without a cluster there are %d hooks", len(o.Hooks))
	}
	r := here("")
	r.Live = []*unstructured.Unstructured{system()}
	var kinds []string
	for _, h := range render(t, r).Hooks {
		kinds = append(kinds, h.GetKind())
		if h.GetAnnotations()["helm.sh/hook"] != "pre-delete" {
			t.Errorf("%s: %v", h.GetKind(), h.GetAnnotations())
		}
	}
	if want := []string{"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Job"}; !slices.Equal(kinds, want) {
		t.Errorf("hooks %v, want %v", kinds, want)
	}
}

// Helm keeps policies and CustomResourceDefinitions, with or without hooks: a Deployment that is still held stays protected,
// and its release at its gate. The hook deletes them, once none is held.
func TestKept(t *testing.T) {
	for _, o := range render(t, here("crds: {keep: false}")).Installed {
		want := strings.HasPrefix(o.GetKind(), "ValidatingAdmissionPolicy") || o.GetKind() == "CustomResourceDefinition"
		if kept := o.GetAnnotations()["helm.sh/resource-policy"] == "keep"; kept != want {
			t.Errorf("%s/%s: kept %t", o.GetKind(), o.GetName(), kept)
		}
	}
}
