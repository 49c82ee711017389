package managedfields

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// namedFields is how many fields of one manager a message names.
const namedFields = 5

// OfRelease returns the fields that an entry has of those that only rollout writes.
func OfRelease(e metav1.ManagedFieldsEntry) []string {
	set := &fieldpath.Set{}
	if e.FieldsV1 == nil || set.FromJSON(e.FieldsV1.GetRawReader()) != nil {
		return nil // whose fields cannot be read is not named
	}
	var names []string
	set.Leaves().Iterate(func(p fieldpath.Path) {
		name := strings.TrimPrefix(p.String(), ".")
		if strings.HasPrefix(name, "spec.template.") || strings.HasPrefix(name, "spec.strategy") || name == "spec.paused" {
			names = append(names, name)
		}
	})
	return Shorten(names)
}

// Shorten returns the first names, and how many more there are.
func Shorten(names []string) []string {
	if more := len(names) - namedFields; more > 0 {
		names = append(names[:namedFields], fmt.Sprintf("%d more", more))
	}
	return names
}
