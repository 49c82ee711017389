// Package duplicates finds entries of a list that have the same key, such as two environment
// variables of one name.
//
// An API server refuses them in an apply, and takes them in any other write. By then no
// apply brings the object to another state. So a manifest must not have them, also where
// its fields are written otherwise.
package duplicates

import (
	"errors"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/tranche-dev/tranche/plan"
)

// Check returns a problem for each key of a list that more than one entry of o has. Which fields
// are such lists is what the API server says of its own kinds (x-kubernetes-list-type and
// x-kubernetes-list-map-keys). For other kinds, and for objects with fields that are not known
// here, Check finds nothing: the API server knows them better.
func Check(o plan.Object) plan.Problems {
	_, err := converter().ObjectToTyped(o.Unstructured)
	found, ok := errors.AsType[typed.ValidationErrors](err)
	if !ok {
		return nil
	}
	slices.SortFunc(found, func(a, b typed.ValidationError) int { return strings.Compare(a.Error(), b.Error()) })
	var ps plan.Problems
	for _, e := range slices.Compact(found) { // three entries are one problem
		if key, ok := strings.CutPrefix(e.ErrorMessage, "duplicate entries for key "); ok {
			ps = append(ps, &plan.Problem{
				Reason: plan.ReasonInvalidManifest,
				Where:  plan.Where(o.File, o.String(), strings.TrimPrefix(e.Path, ".")),
				Err:    errors.New("more than one entry has the key " + key),
				Hint:   "keep one of them",
			})
		}
	}
	return ps
}

// converter knows the kinds of Kubernetes. To read their schema takes 0.1 s, and 1 MiB.
var converter = sync.OnceValue(func() managedfields.TypeConverter { return applyconfigurations.NewTypeConverter(scheme.Scheme) })
