package crds

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tranche-dev/tranche/config"
)

// A CustomResourceDefinition is older if the API server drops a field by it, however its schema does that.
func TestCompare_Older(t *testing.T) {
	for _, tc := range []struct {
		reason, crd, at, key string // what is taken out, below openAPIV3Schema
		state                State
		lacks                string
	}{
		{"as it is", "batchreleases", "", "", Equal, ""},
		{"a field", "gitsources", "properties.spec.properties", "verify", Older, "spec.verify"},
		{"all fields of an object", "gitsources", "properties.spec.properties.verify", "properties", Older, "spec.verify"},
		{"the mark that keeps all fields", "batchreleases", "properties.spec.properties.template", "x-kubernetes-preserve-unknown-fields",
			Older, "spec.template"},
		{"a rule", "gitsources", "properties.spec", "x-kubernetes-validations", Differs, ""},
		{"a description", "gitsources", "properties.spec", "description", Words, ""},
	} {
		for _, newer := range []bool{false, true} {
			for _, want := range config.Objects("crd", "CustomResourceDefinition") {
				if !strings.HasPrefix(want.GetName(), tc.crd) {
					continue
				}
				is := want.DeepCopy()
				versions, _, _ := unstructured.NestedSlice(is.Object, "spec", "versions")
				at := versions[0].(map[string]any)["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
				for _, key := range strings.FieldsFunc(tc.at, func(r rune) bool { return r == '.' }) {
					at = at[key].(map[string]any)
				}
				delete(at, tc.key)
				state := tc.state
				if newer { // it has a version more, as v1beta1 is to come
					versions = append([]any{map[string]any{"name": "v1beta1", "served": true}}, versions...)
					if state != Older {
						state = Differs
					}
				}
				if err := unstructured.SetNestedSlice(is.Object, versions, "spec", "versions"); err != nil {
					t.Fatal(err)
				}
				if got := compare(want, is, "apply it"); got.State != state || !strings.Contains(got.Message, tc.lacks) {
					t.Errorf("without %s (newer: %t): %s: %s; want %s", tc.reason, newer, got.State, got.Message, state)
				}
			}
		}
	}
}
