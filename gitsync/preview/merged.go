package preview

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured/unstructuredscheme"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/openapi3"

	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// merger does what the API server does with an apply, on this side. It serves an
// account that may read an object and not write it, not even in a dry run. It is the
// same code, with the schemas that the server publishes. It knows no defaults, no
// admission and no conversion between versions of a kind.
type merger struct {
	schemas    openapi3.Root
	converters map[schema.GroupVersion]managedfields.TypeConverter
}

func newMerger(schemas openapi.Client) *merger {
	return &merger{schemas: openapi3.NewRoot(schemas), converters: map[schema.GroupVersion]managedfields.TypeConverter{}}
}

// merge returns what an apply by gitsync would make of a live object.
func (m *merger) merge(live, applied *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	gvk := live.GroupVersionKind()
	types, err := m.converter(gvk.GroupVersion())
	if err != nil {
		return nil, err
	}
	fields, err := managedfields.NewDefaultCRDFieldManager(types, asIs{}, unstructuredscheme.NewUnstructuredDefaulter(),
		unstructuredscheme.NewUnstructuredCreator(), gvk, gvk.GroupVersion(), "", nil)
	if err != nil {
		return nil, fmt.Errorf("merging %s: %w", inventory.Of(live), err)
	}
	live = live.DeepCopy()
	// A manager that wrote in another version shares no field with any other here.
	live.SetManagedFields(
		slices.DeleteFunc(live.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return e.APIVersion != live.GetAPIVersion() }))
	merged, err := fields.Apply(live, applied, v1alpha1.ManagerGitSync, true)
	if err != nil {
		return nil, fmt.Errorf("merging %s: %w", inventory.Of(live), err)
	}
	if merged == nil {
		return live, nil // nothing changes
	}
	u, ok := merged.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("merging %s: came out as %T", inventory.Of(live), merged)
	}
	return u, nil
}

// converter knows the types of a group and version, as the server publishes them.
func (m *merger) converter(gv schema.GroupVersion) (managedfields.TypeConverter, error) {
	if c, ok := m.converters[gv]; ok {
		return c, nil
	}
	document, err := m.schemas.GVSpec(gv)
	if err != nil {
		return nil, fmt.Errorf("reading the schemas of %s: %w", gv, err)
	}
	c, err := managedfields.NewTypeConverter(document.Components.Schemas, false)
	if err != nil {
		return nil, fmt.Errorf("reading the schemas of %s: %w", gv, err)
	}
	m.converters[gv] = c
	return c, nil
}

// asIs converts nothing: there is one version.
type asIs struct{}

func (asIs) Convert(_, _, _ any) error {
	return fmt.Errorf("an unstructured object is not converted")
}

func (asIs) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}

func (asIs) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}
