package duplicates_test

import (
	"path"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/gitsync/duplicates"
	"github.com/tranche-dev/tranche/plan"
)

const more = "more than one entry has the key "

func TestCheck(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind, spec string
		want       []string
	}{
		"environment": {"apps/v1/Deployment",
			`{template: {spec: {containers: [{name: c, env: [{name: A, value: "1"}, {name: B}, {name: A, value: "2"}, {name: A}]}]}}}`,
			[]string{`spec.template.spec.containers[name="c"].env: more than one entry has the key [name="A"]; keep one of them`}},
		"ports of one number": {"apps/v1/Deployment",
			`{template: {spec: {containers: [{name: c, ports: [{containerPort: 80, name: a}, {containerPort: 80, name: b}]}]}}}`,
			[]string{`spec.template.spec.containers[name="c"].ports: ` + more + `[containerPort=80,protocol="TCP"]; keep one of them`}},
		"ports of two protocols": {"apps/v1/Deployment",
			`{template: {spec: {containers: [{name: c, ports: [{containerPort: 53}, {containerPort: 53, protocol: UDP}]}]}}}`, nil},
		"containers and volumes": {"apps/v1/StatefulSet",
			`{template: {spec: {containers: [{name: c}, {name: c}], volumes: [{name: v}, {name: v}]}}}`,
			[]string{`spec.template.spec.containers: more than one entry has the key [name="c"]; keep one of them`,
				`spec.template.spec.volumes: more than one entry has the key [name="v"]; keep one of them`}},
		"the same of two containers": {"apps/v1/Deployment",
			`{template: {spec: {containers: [{name: c, env: [{name: A}]}, {name: d, env: [{name: A}]}]}}}`, nil},
		"arguments":                  {"apps/v1/Deployment", `{template: {spec: {containers: [{name: c, args: [-v, -v]}]}}}`, nil},
		"a kind of others":           {"example.org/v1/Thing", `{env: [{name: A}, {name: A}]}`, nil},
		"a field of a later version": {"apps/v1/Deployment", `{later: 1, template: {spec: {containers: [{name: c}]}}}`, nil},
		"a wrong type":               {"apps/v1/Deployment", `{template: {spec: {containers: c}}}`, nil},
		"nothing":                    {"apps/v1/Deployment", `null`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			group, kind := path.Split(c.kind)
			group = strings.TrimSuffix(group, "/")
			u := &unstructured.Unstructured{}
			manifest := "{apiVersion: " + group + ", kind: " + kind + ", metadata: {name: web}, spec: " + c.spec + "}"
			if err := yaml.Unmarshal([]byte(manifest), &u.Object); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range duplicates.Check(plan.Object{Unstructured: u, File: "web.yaml"}) {
				got = append(got, p.Error())
			}
			if len(got) != len(c.want) {
				t.Fatalf("got %q, want %q", got, c.want)
			}
			for i, want := range c.want {
				if want = "web.yaml: " + kind + " web: " + want; got[i] != want {
					t.Errorf("got %q, want %q", got[i], want)
				}
			}
		})
	}
}
