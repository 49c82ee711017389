package gitsync

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/fieldmanager"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// racing lets another write come before the first apply.
type racing struct {
	client.Client
	applies int
	other   func()
}

func (r *racing) Apply(ctx context.Context, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	if r.applies++; r.applies == 1 {
		r.other()
	}
	return r.Client.Apply(ctx, o, opts...)
}

// The first status of a new Deployment comes while its fields are handed over:
// that reads again, and leaves the rest of the source alone.
func TestHandOverBesideAnotherWrite(t *testing.T) {
	c := clustertest.Shared(t)
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"replicas": int64(0), "selector": map[string]any{"matchLabels": map[string]any{"app": "web"}},
		"template": map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"app": "web"}},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "web", "image": "registry.example.org/web:v1"}}},
		},
	}}}
	u.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	u.SetNamespace(c.Namespace(t))
	u.SetName("web")
	if err := c.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u.DeepCopy()), client.FieldOwner(v1alpha1.ManagerGitSync)); err != nil {
		t.Fatal(err)
	}
	r := &racing{Client: c.Client, other: func() {
		mark := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"template":{"metadata":{"annotations":{"by":"another"}}}}}`))
		if err := c.Client.Patch(t.Context(), u.DeepCopy(), mark); err != nil {
			t.Fatal(err)
		}
	}}
	read, err := inventory.Get(t.Context(), c.Client, inventory.Of(u))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fieldmanager.HandOver(t.Context(), r, read, v1alpha1.ManagerRollout, fieldmanager.RolloutFields); err != nil {
		t.Fatal(err)
	}
	live, err := inventory.Get(t.Context(), c.Client, inventory.Of(u))
	if err != nil {
		t.Fatal(err)
	}
	if by, _, _ := unstructured.NestedString(live.Object, "spec", "template", "metadata", "annotations", "by"); by != "another" || r.applies < 2 {
		t.Errorf("after %d applies the template is marked by %q", r.applies, by)
	}
	var hands []string
	for _, e := range live.GetManagedFields() {
		if e.Operation == metav1.ManagedFieldsOperationApply {
			hands = append(hands, e.Manager)
		}
	}
	theirs, err := fieldmanager.Fields(live, v1alpha1.ManagerRollout, false)
	if err != nil || theirs.WithPrefix(fieldmanager.Name("spec")).WithPrefix(fieldmanager.Name("template")).Empty() {
		t.Errorf("the template is not rollout's: applied by %v, error %v", hands, err)
	}
}
