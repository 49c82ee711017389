package inventory

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

func TestInventory(t *testing.T) {
	for _, e := range []Entry{
		{schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, "shop", "web"},
		{schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, "shop", "a.b-c"},
		{schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, "", "shop"},
		{schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}, "", "system:shop:a_b"},
	} {
		got, ok := Parse(v1alpha1.InventoryEntry{ID: e.ID(), Version: e.GVK.Version})
		if !ok || got != e {
			t.Errorf("%s: %+v, %t", e.ID(), got, ok)
		}
	}
	if id := (Entry{schema.GroupVersionKind{Group: "apps", Kind: "Deployment"}, "shop", "web"}).ID(); id != "shop_web_apps_Deployment" {
		t.Errorf("%s is not Flux's format", id)
	}
	for _, id := range []string{"", "a", "a_b", "a_b_c", "_"} {
		if e, ok := Parse(v1alpha1.InventoryEntry{ID: id}); ok {
			t.Errorf("%q is %+v", id, e)
		}
	}
}

func TestPruneOrder(t *testing.T) {
	var list []Entry
	for _, k := range []string{
		"Namespace", "apiextensions.k8s.io/CustomResourceDefinition", "ServiceAccount", "ConfigMap", "Service", "apps/Deployment",
		"example.org/Toy", "tranche.dev/BatchRelease",
	} {
		group, kind, ok := strings.Cut(k, "/")
		if !ok {
			group, kind = "", k
		}
		list = append(list, Entry{schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}, "shop", "a"})
	}
	want := slices.Clone(list)
	slices.Reverse(want)
	want[len(want)-1], want[len(want)-2] = want[len(want)-2], want[len(want)-1] // CRDs after namespaces: cluster-wide things last
	sortForPruning(list)
	var got, wanted []string
	for i := range list {
		got, wanted = append(got, list[i].GVK.Kind), append(wanted, want[i].GVK.Kind)
	}
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestGeneratedNames(t *testing.T) {
	of := func(kind, name string) Entry {
		return Entry{schema.GroupVersionKind{Version: "v1", Kind: kind}, "shop", name}
	}
	for _, tt := range []struct {
		reason string
		e      Entry
		want   string
	}{
		{"as kustomize names it", of("ConfigMap", "settings-7d4h9b2ktf"), "settings"},
		{"a Secret, too", of("Secret", "a-b-7d4h9b2ktf"), "a-b"},
		{"no hash", of("ConfigMap", "settings"), ""},
		{"a word of ten letters", of("ConfigMap", "shop-production"), ""},
		{"nothing that is generated", of("Service", "settings-7d4h9b2ktf"), ""},
		{"nothing before it", of("ConfigMap", "7d4h9b2ktf"), ""},
	} {
		if got := tt.e.WithoutHash(); got.Name != tt.want {
			t.Errorf("%s: %q, want %q", tt.reason, got.Name, tt.want)
		}
	}
}
