package prune

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

func objectOf(kind string, edit ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	group, kind, ok := strings.Cut(kind, ":")
	if !ok {
		group, kind = "", group
	}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind})
	u.SetNamespace("shop")
	u.SetName("a")
	u.SetLabels(map[string]string{v1alpha1.LabelSource: "shop", v1alpha1.LabelSourceNamespace: "flow", "app": "a"})
	for _, e := range edit {
		e(u)
	}
	return u
}

func annotated(key, value string) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{key: value}) }
}

func controlled(u *unstructured.Unstructured) {
	yes := true
	u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "1", Controller: &yes}})
}

func TestDecide(t *testing.T) {
	gs := &v1alpha1.GitSource{ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: "flow"}}
	used := inventory.Used{"ConfigMap shop/a": "ReplicaSet shop/web-1"}
	tests := []struct {
		reason string
		live   *unstructured.Unstructured
		want   Action
	}{
		{"ours, and nothing needs it", objectOf("Service"), Delete},
		{"the same name in another kind is used", objectOf("Secret"), Delete},
		{"pods refer to it", objectOf("ConfigMap"), Keep},
		{"another manager took our labels away", objectOf("Service", func(u *unstructured.Unstructured) { u.SetLabels(nil) }), Leave},
		{"another source of the same name", objectOf("Service", func(u *unstructured.Unstructured) {
			u.SetLabels(map[string]string{v1alpha1.LabelSource: "shop", v1alpha1.LabelSourceNamespace: "other"})
		}), Leave},
		{"the owner said no", objectOf("Service", annotated(v1alpha1.AnnotationPrune, "disabled")), Leave},
		{"the owner said not to touch it", objectOf("Service", annotated(v1alpha1.AnnotationReconcile, "disabled")), Leave},
		{"a claim has data", objectOf("PersistentVolumeClaim"), Leave},
		{"a namespace has everything", objectOf("Namespace"), Leave},
		{"a CRD has all its objects", objectOf("apiextensions.k8s.io:CustomResourceDefinition"), Leave},
		{"the owner said yes", objectOf("PersistentVolumeClaim", annotated(v1alpha1.AnnotationPrune, "enabled")), Delete},
		{"a Deployment bears no labels of ours, but our manager", objectOf("apps:Deployment", func(u *unstructured.Unstructured) {
			u.SetLabels(nil)
			u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: v1alpha1.ManagerGitSync, Operation: metav1.ManagedFieldsOperationApply}})
		}), Delete},
		{"a Deployment that another manager created again", objectOf("apps:Deployment"), Leave},
		{"a Deployment has adopted it", objectOf("apps:ReplicaSet", controlled), Leave},
		{"an operator has adopted it", objectOf("Service", controlled), Leave},
		{"an owner that does not control it", objectOf("Service", func(u *unstructured.Unstructured) {
			u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: "1"}})
		}), Delete},
		{"a plan ends the hold of its Deployment", objectOf("tranche.dev:BatchRelease", controlled), Delete},
		{"a namespace of another API is a plain object", objectOf("example.org:Namespace"), Delete},
	}
	for _, tt := range tests {
		got, because := Decide(tt.live, gs, used)
		if got != tt.want {
			t.Errorf("%s: %v, want %v", tt.reason, got, tt.want)
		}
		if (because == "") != (got == Delete) {
			t.Errorf("%s: says %q", tt.reason, because)
		}
	}
}
