package managedfields

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Different names the fields in which two pod templates differ, in order, and
// at most [namedFields] of them.
func Different(before, after *corev1.PodTemplateSpec) []string {
	var values [2]any
	for i, t := range []*corev1.PodTemplateSpec{before, after} {
		raw, err := json.Marshal(t)
		if err == nil {
			err = json.Unmarshal(raw, &values[i])
		}
		if err != nil { // a template of the API server encodes
			return []string{"spec.template"}
		}
	}
	return Shorten(differences("spec.template", values[0], values[1]))
}

// differences names the leaves in which two JSON values differ.
func differences(path string, before, after any) []string {
	if a, ok := before.(map[string]any); ok {
		if b, ok := after.(map[string]any); ok {
			keys := maps.Clone(a)
			maps.Copy(keys, b)
			var fields []string
			for _, k := range slices.Sorted(maps.Keys(keys)) {
				fields = append(fields, differences(path+"."+k, a[k], b[k])...)
			}
			return fields
		}
	}
	if a, ok := before.([]any); ok {
		if b, ok := after.([]any); ok && len(a) == len(b) {
			var fields []string
			for i := range a {
				fields = append(fields, differences(fmt.Sprintf("%s[%d]", path, i), a[i], b[i])...)
			}
			return fields
		}
	}
	if reflect.DeepEqual(before, after) {
		return nil
	}
	return []string{path}
}
