// Package crds compares the CustomResourceDefinitions of a cluster with those of this program.
package crds

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/config"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// State is how a CustomResourceDefinition compares with that of this program.
type State string

// The states of a CustomResourceDefinition.
const (
	Equal     State = "equal"
	Missing   State = "missing"
	Deleted   State = "being deleted"
	NotServed State = "not served"
	Older     State = "older"   // it lacks fields
	Newer     State = "newer"   // it has more fields
	Differs   State = "differs" // in a rule, a column or a name
	Words     State = "words"   // in descriptions alone
	Unread    State = "unread"
)

// Comparison is the result for one CustomResourceDefinition.
type Comparison struct {
	Name    string
	State   State
	Message string
	Todo    string // empty where there is nothing to do
	Err     error  // of Unread
	// Metadata is of the CustomResourceDefinition that was compared; nil: there is none, or it was not read.
	Metadata metav1.Object
}

// Compare compares all CustomResourceDefinitions of this program. apply is how a user applies
// them.
func Compare(ctx context.Context, c client.Reader, apply string) []Comparison {
	var list []Comparison
	for _, want := range config.Objects("crd", "CustomResourceDefinition") {
		list = append(list, CompareOne(ctx, c, want, apply))
	}
	return list
}

// CompareOne compares one CustomResourceDefinition of this program.
func CompareOne(ctx context.Context, c client.Reader, want *unstructured.Unstructured, apply string) Comparison {
	is := &unstructured.Unstructured{}
	is.SetGroupVersionKind(want.GroupVersionKind())
	err := c.Get(ctx, client.ObjectKey{Name: want.GetName()}, is)
	var r Comparison
	switch {
	case apierrors.IsNotFound(err):
		r = Comparison{State: Missing, Message: "not found", Todo: apply}
	case err != nil:
		r = Comparison{State: Unread, Message: err.Error(), Err: err}
	default:
		r = compare(want, is, apply)
		r.Metadata = is
	}
	r.Name = want.GetName()
	return r
}

func compare(want, is *unstructured.Unstructured, apply string) Comparison {
	if is.GetDeletionTimestamp() != nil {
		return Comparison{State: Deleted, Message: "it is being deleted, with all objects of its kind",
			Todo: "see docs/operating.md, Deleting a CustomResourceDefinition"}
	}
	if message := notEstablished(is); message != "" {
		return Comparison{State: NotServed, Message: message, Todo: "see kubectl describe crd " + is.GetName()}
	}
	served := versionOf(is)
	if served == nil || served["served"] != true {
		return Comparison{State: NotServed, Message: "version " + v1alpha1.GroupVersion.Version + " is not served", Todo: apply}
	}
	d, fields := differences{}, differences{}
	d.compare("", specOf(want), specOf(is))
	fields.compare("versions.0", versionOf(want), served) // there may be other versions, or another order
	d.missing = fields.missing
	switch {
	case len(d.missing) > 0:
		return Comparison{State: Older, Message: "it is older than this program, and lacks " + plan.JoinNames(d.missing),
			Todo: apply + ": no release moves before that"}
	case len(d.extra) > 0:
		return Comparison{State: Newer, Message: "it is newer than this program, which does not know " + plan.JoinNames(d.extra),
			Todo: "use controller and command line of the version that it comes from: an older controller ignores these fields"}
	case len(d.changed) > 0:
		return Comparison{State: Differs, Message: "it differs from that of this program in " + plan.JoinNames(d.changed), Todo: apply}
	case len(d.words) > 0:
		return Comparison{State: Words, Message: "it is of another version than this program; only descriptions differ", Todo: apply}
	}
	return Comparison{State: Equal, Message: v1alpha1.GroupVersion.Version + " is served, equal to that of this program"}
}

// notEstablished returns why the API server does not serve a CustomResourceDefinition;
// empty: it does.
func notEstablished(o *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions") // another form has none
	for _, c := range conditions {
		c, ok := c.(map[string]any)
		if !ok || c["type"] != "Established" && c["type"] != "NamesAccepted" || c["status"] == "True" {
			continue
		}
		return fmt.Sprintf("%v is %v: %v", c["type"], c["status"], c["message"])
	}
	return ""
}

// versionOf returns the version of the API that this program speaks; nil: there is none.
func versionOf(o *unstructured.Unstructured) map[string]any {
	versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions") // another form has none
	for _, v := range versions {
		if v, ok := v.(map[string]any); ok && v["name"] == v1alpha1.GroupVersion.Version {
			return v
		}
	}
	return nil
}

// specOf returns the spec without what the API server adds to it.
func specOf(o *unstructured.Unstructured) map[string]any {
	spec, _, _ := unstructured.NestedMap(o.Object, "spec") // it is a copy
	delete(spec, "conversion")
	delete(spec, "preserveUnknownFields")
	return spec
}

// differences are the places in which two schemas differ.
type differences struct {
	missing, extra []string // fields of the API
	changed        []string
	words          []string // descriptions
}

// compare walks through two values of JSON at a path.
func (d *differences) compare(path string, want, is any) {
	if reflect.DeepEqual(want, is) {
		return
	}
	switch want := want.(type) {
	case map[string]any:
		if is, ok := is.(map[string]any); ok {
			d.compareMaps(path, want, is)
			return
		}
	case []any:
		if is, ok := is.([]any); ok && len(want) == len(is) {
			for i := range want {
				d.compare(fmt.Sprintf("%s.%d", path, i), want[i], is[i])
			}
			return
		}
	}
	d.changed = append(d.changed, fieldOf(path))
}

// keeps are what a schema says by which the API server keeps fields. Without it, it drops them.
var keeps = map[string]bool{
	"properties": true, "additionalProperties": true, "items": true,
	"x-kubernetes-preserve-unknown-fields": true, "x-kubernetes-embedded-resource": true,
}

func (d *differences) compareMaps(path string, want, is map[string]any) {
	keys := maps.Clone(want)
	maps.Copy(keys, is)
	fields := strings.HasSuffix(path, ".properties")
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		at := path + "." + key
		_, wanted := want[key]
		_, there := is[key]
		switch {
		case key == "description" && !fields:
			if want[key] != is[key] {
				d.words = append(d.words, fieldOf(path))
			}
		case fields && !there, keeps[key] && !fields && is[key] == nil:
			d.missing = append(d.missing, fieldOf(at))
		case fields && !wanted:
			d.extra = append(d.extra, fieldOf(at))
		default:
			d.compare(at, want[key], is[key])
		}
	}
}

// fieldOf returns the field of the API that a path in a CustomResourceDefinition is about,
// or the path itself.
func fieldOf(path string) string {
	_, schema, ok := strings.Cut(path, ".openAPIV3Schema.")
	if !ok {
		return strings.TrimPrefix(path, ".")
	}
	var field []string
	parts := strings.Split(schema, ".")
	for i := 0; i < len(parts); i++ {
		switch {
		case parts[i] == "properties" && i+1 < len(parts):
			i++
			field = append(field, parts[i])
		case parts[i] == "items" && len(field) > 0:
			field[len(field)-1] += "[]"
		}
	}
	return strings.Join(field, ".")
}
