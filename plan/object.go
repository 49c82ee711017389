package plan

import (
	"errors"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	return &Problem{Reason: reason, Where: Where(o.File, o.String(), field), Err: errors.New(fact), Hint: hint}
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

// Where joins file, object and field, leaving out those that are empty.
func Where(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ": ")
}

// Sorted puts problems in the order of what they are about.
func (ps Problems) Sorted() Problems {
	slices.SortStableFunc(ps, func(a, b *Problem) int { return strings.Compare(a.Where, b.Where) })
	return ps
}

// Err is nil where there are no problems; a nil Problems in an error is not.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps.Sorted()
}

// CheckIdentity checks the fields without which an object is not one. They are
// read past the accessors of unstructured, which take a wrong type for absent.
func (o Object) CheckIdentity() Problems {
	var ps Problems
	add := func(name, fact string) {
		ps = append(ps, &Problem{Reason: ReasonInvalidManifest, Where: Where(o.File, o.label(), name), Err: errors.New(fact)})
	}
	for _, name := range []string{"apiVersion", "kind"} {
		if s, ok := o.Object[name].(string); !ok || s == "" {
			add(name, notAString(o.Object[name]))
		}
	}
	if v := o.GetAPIVersion(); strings.Count(v, "/") > 1 {
		add("apiVersion", v+": must be a version, or a group and a version")
	}
	meta := struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}{}
	m := map[string]any{"metadata": o.Object["metadata"]}
	fits := true
	for _, e := range decode(m, &meta, nil) {
		if strings.HasPrefix(e.Detail, unknownField) {
			continue // the server knows better which fields there are
		}
		fact, _ := describe(e)
		if o.Object["kind"] == "Secret" { // whose values are not shown
			fact, _, _ = strings.Cut(strings.Split(e.Detail, ` "`)[0], ", not")
		}
		add(e.Field, fact)
		fits = false
	}
	if fits && o.GetName() == "" {
		add("metadata.name", "must be set")
	}
	return ps
}

func notAString(v any) string {
	if v == nil || v == "" {
		return "must be set"
	}
	return misfit(v, "a string", field.NewPath(""))[0].Detail
}

// label names an object of which not even the name is sure.
func (o Object) label() string {
	kind, _ := o.Object["kind"].(string)
	name, _, _ := unstructured.NestedString(o.Object, "metadata", "name")
	return strings.TrimSpace(kind + " " + name)
}
