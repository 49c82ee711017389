package fieldmanager

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Regained returns the fields that an apply gave back to gitsync. A manager that changes or
// removes a field takes it from gitsync. A status that was written since the object was read
// is no such change, nor is a write of rollout.
func Regained(before, after *unstructured.Unstructured) (*fieldpath.Set, error) {
	had, err := Fields(before, v1alpha1.ManagerGitSync, false)
	if err != nil {
		return nil, err
	}
	has, err := Fields(after, v1alpha1.ManagerGitSync, false)
	if err != nil {
		return nil, err
	}
	return has.Difference(had), nil
}

// Differing returns those leaves of a set that have another value before than after. A field
// may change its manager and keep its value, as in an object that was deleted and created
// again with the same content.
func Differing(before, after *unstructured.Unstructured, set *fieldpath.Set) *fieldpath.Set {
	differing := &fieldpath.Set{}
	set.Leaves().Iterate(func(p fieldpath.Path) {
		was, had := valueAt(before.Object, p)
		is, has := valueAt(after.Object, p)
		if !had || !has || !value.Equals(value.NewValueInterface(was), value.NewValueInterface(is)) {
			differing.Insert(p.Copy())
		}
	})
	return differing
}

// valueAt returns the value of a field, and whether there is one.
func valueAt(at any, p fieldpath.Path) (v any, found bool) {
	for _, e := range p {
		switch {
		case e.FieldName != nil:
			fields, _ := at.(map[string]any)
			at, found = fields[*e.FieldName]
		default:
			items, _ := at.([]any)
			i := slices.IndexFunc(items, func(item any) bool { return isItem(item, e) })
			if e.Index != nil && *e.Index < len(items) {
				i = *e.Index
			}
			if found = i >= 0; found {
				at = items[i]
			}
		}
		if !found {
			return nil, false
		}
	}
	return at, true
}

// isItem reports whether an item of a list has the key, or the value, of an element of a path.
func isItem(item any, e fieldpath.PathElement) bool {
	if e.Value != nil {
		return value.Equals(value.NewValueInterface(item), *e.Value)
	}
	fields, ok := item.(map[string]any)
	return ok && e.Key != nil && !slices.ContainsFunc(*e.Key, func(f value.Field) bool {
		return !value.Equals(value.NewValueInterface(fields[f.Name]), f.Value)
	})
}

// Changes returns which managers have changed which of the fields that gitsync had lost. A
// field that no manager has was removed, and the object does not say by which one.
func Changes(before *unstructured.Unstructured, lost *fieldpath.Set) ([]string, error) {
	var by []string
	lost = lost.Leaves()
	for _, e := range before.GetManagedFields() {
		if e.FieldsV1 == nil || e.Manager == v1alpha1.ManagerGitSync && e.Operation == metav1.ManagedFieldsOperationApply {
			continue
		}
		set, err := setOf(before, e)
		if err != nil {
			return nil, err
		}
		if changed := lost.Intersection(set); !changed.Empty() {
			lost = lost.Difference(changed)
			by = append(by, fieldNames(changed)+" was changed by "+cmp.Or(e.Manager, "another hand"))
		}
	}
	if !lost.Empty() {
		by = append(by, fieldNames(lost)+" was removed")
	}
	return by, nil
}

// namedFields is how many fields a message names.
const namedFields = 5

func fieldNames(set *fieldpath.Set) string {
	var all []string
	set.Iterate(func(p fieldpath.Path) { all = append(all, strings.TrimPrefix(p.String(), ".")) })
	if more := len(all) - namedFields; more > 0 {
		all = append(all[:namedFields], fmt.Sprintf("%d more", more))
	}
	return strings.Join(all, ", ")
}
