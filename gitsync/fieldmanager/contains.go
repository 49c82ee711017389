package fieldmanager

import (
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
)

// Without returns an object without some of its fields.
func Without(object any, fields []string) any {
	m, ok := object.(map[string]any)
	if !ok {
		return object
	}
	m = maps.Clone(m)
	for _, field := range fields {
		delete(m, field)
	}
	return m
}

// Contains reports whether an object has all that a manifest says.
func Contains(live, manifest any) bool {
	m, ok := manifest.(map[string]any)
	if !ok {
		return manifest == nil || equality.Semantic.DeepEqual(live, manifest)
	}
	l, ok := live.(map[string]any)
	if !ok {
		return len(m) == 0
	}
	for k, v := range m {
		if !Contains(l[k], v) {
			return false
		}
	}
	return true
}
