package plan

import (
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Object is one manifest and the file it comes from.
type Object struct {
	*unstructured.Unstructured
	// File is a slash path from the repository's root; for a generated
	// object it is the kustomization that generates it.
	File string
}

// String is kind, namespace and name, as in "Deployment shop/web".
func (o Object) String() string {
	if ns := o.GetNamespace(); ns != "" {
		return o.GetKind() + " " + ns + "/" + o.GetName()
	}
	return o.GetKind() + " " + o.GetName()
}

func (o Object) groupKind() schema.GroupKind { return o.GroupVersionKind().GroupKind() }

// key names an object in a cluster, whatever the version of its manifest.
type key struct {
	schema.GroupKind
	namespace, name string
}

func (o Object) key() key { return key{o.groupKind(), o.GetNamespace(), o.GetName()} }

// problem is about a field of o; an empty field is the whole object.
func (o Object) problem(reason, field, fact, hint string) *Problem {
	return &Problem{Reason: reason, Where: where(o.File, o.String(), field), Err: errors.New(fact), Hint: hint}
}

// fieldProblems says what is wrong with fields of o in our own words, which
// name the field once.
func (o Object) fieldProblems(reason string, errs field.ErrorList) Problems {
	var ps Problems
	for _, e := range errs {
		fact, hint := describe(e)
		ps = append(ps, o.problem(reason, e.Field, fact, hint))
	}
	return ps
}

// where joins file, object and field, leaving out those that are empty.
func where(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ": ")
}

// sorted puts problems in the order of what they are about.
func (ps Problems) sorted() Problems {
	slices.SortStableFunc(ps, func(a, b *Problem) int { return strings.Compare(a.Where, b.Where) })
	return ps
}

// err is nil where there are no problems; a nil Problems in an error is not.
func (ps Problems) err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps.sorted()
}
