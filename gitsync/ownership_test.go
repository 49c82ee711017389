package gitsync

import (
	"context"
	"encoding/json"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/fieldmanager"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// racing lets another write come before the first patch.
type racing struct {
	client.Client
	patches int
	other   func()
}

func (r *racing) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if r.patches++; r.patches == 1 {
		r.other()
	}
	return r.Client.Patch(ctx, o, patch, opts...)
}

// handedOver is a Deployment as gitsync applies it first.
func handedOver(namespace string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"replicas": int64(0), "selector": map[string]any{"matchLabels": map[string]any{"app": "web"}},
		"strategy": map[string]any{"rollingUpdate": map[string]any{"maxSurge": "50%"}},
		"template": map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"app": "web", "tier": "front"}},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "web", "image": "web:v1"}}},
		},
	}}}
	u.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	u.SetNamespace(namespace)
	u.SetName("web")
	return u
}

// Another write comes while the fields of a Deployment are handed over. It stays, and the next
// apply without these fields removes none. Only a write of a field of gitsync's is followed by a
// second try.
func TestHandOverBesideAnotherWrite(t *testing.T) {
	c := clustertest.Shared(t)
	gitsync := client.FieldOwner(v1alpha1.ManagerGitSync)
	for name, tc := range map[string]struct {
		kind    types.PatchType
		patch   string
		patches int
	}{
		"an annotation":            {types.MergePatchType, `{"metadata":{"annotations":{"by":"another"}}}`, 1},
		"a field that Git has not": {types.MergePatchType, `{"spec":{"template":{"metadata":{"annotations":{"by":"another"}}}}}`, 1},
		"a field that Git has":     {types.JSONPatchType, `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"web:v9"}]`, 2},
		"a field is removed":       {types.MergePatchType, `{"spec":{"template":{"metadata":{"labels":{"tier":null}}}}}`, 2},
		"the strategy":             {types.JSONPatchType, `[{"op":"replace","path":"/spec/strategy","value":{"type":"Recreate"}}]`, 2},
	} {
		t.Run(name, func(t *testing.T) {
			u := handedOver(c.Namespace(t))
			write := func(kind types.PatchType, patch string, opts ...client.PatchOption) (written *unstructured.Unstructured) {
				t.Helper()
				written = u.DeepCopy()
				if err := c.Client.Patch(t.Context(), written, client.RawPatch(kind, []byte(patch)), opts...); err != nil {
					t.Fatal(err)
				}
				return written
			}
			apply := func() *unstructured.Unstructured {
				t.Helper()
				manifest, err := json.Marshal(u)
				if err != nil {
					t.Fatal(err)
				}
				return write(types.ApplyPatchType, string(manifest), gitsync, client.ForceOwnership)
			}
			apply()
			read := write(types.ApplyPatchType, `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"minReadySeconds":3}}`, client.FieldOwner("beside"))
			var then *unstructured.Unstructured
			r := &racing{Client: c.Client, other: func() { then = write(tc.kind, tc.patch, client.FieldOwner("hand")) }}
			handed, err := fieldmanager.HandOver(t.Context(), r, read, v1alpha1.ManagerRollout, fieldmanager.RolloutFields)
			if err != nil {
				t.Fatal(err)
			}
			if r.patches != tc.patches {
				t.Errorf("%d tries, want %d", r.patches, tc.patches)
			}
			unstructured.RemoveNestedField(u.Object, "spec", "template")
			unstructured.RemoveNestedField(u.Object, "spec", "strategy")
			after := apply()
			for what, spec := range map[string]any{"handed over": handed.Object["spec"], "applied again": after.Object["spec"]} {
				if !equality.Semantic.DeepEqual(spec, then.Object["spec"]) {
					t.Errorf("%s: the spec is %v, and was %v", what, spec, then.Object["spec"])
				}
			}
			theirs, err := fieldmanager.Fields(after, v1alpha1.ManagerRollout, false)
			if err != nil || theirs.WithPrefix(fieldmanager.Name("spec")).WithPrefix(fieldmanager.Name("template")).Empty() {
				t.Errorf("the template is not rollout's: %v, error %v", after.GetManagedFields(), err)
			}
		})
	}
}
