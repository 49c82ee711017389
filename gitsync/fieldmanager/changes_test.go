package fieldmanager_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/gitsync/fieldmanager"
)

// Fields that have changed their manager count only if they have another value.
func TestDiffering(t *testing.T) {
	const managed = `{"f:metadata":{"f:labels":{"f:team":{}},"f:finalizers":{"v:\"example.org/a\"":{}}},
		"f:spec":{"f:replicas":{},"f:selector":{},"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:name":{},"f:image":{}}}}}}}`
	const git = `
metadata: {labels: {team: shop}, finalizers: [example.org/a]}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template: {spec: {containers: [{name: web, image: "web:v1"}]}}
`
	set := &fieldpath.Set{}
	if err := set.FromJSON(strings.NewReader(managed)); err != nil {
		t.Fatal(err)
	}
	object := func(text string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		return u
	}
	for _, tc := range []struct{ old, new, want string }{
		{"", "", ""},
		{"replicas: 2", "replicas: 3", ".spec.replicas"},
		{"  replicas: 2\n", "", ".spec.replicas"},
		{"app: web", "app: api", ".spec.selector"},
		{"web:v1", "web:v0", `.spec.template.spec.containers[name="web"].image`},
		{"{name: web", "{name: other}, {name: web", ""},
		{"team: shop", "team: hand", ".metadata.labels.team"},
		{"[example.org/a]", "[example.org/b, example.org/a]", ""},
		{"[example.org/a]", "[example.org/b]", `.metadata.finalizers[="example.org/a"]`},
	} {
		var got []string
		fieldmanager.Differing(object(strings.Replace(git, tc.old, tc.new, 1)), object(git), set).Iterate(func(p fieldpath.Path) {
			got = append(got, p.String())
		})
		if strings.Join(got, " ") != tc.want {
			t.Errorf("with %q: %q, want %q", tc.new, got, tc.want)
		}
	}
}
