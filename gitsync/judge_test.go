package gitsync

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

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

func TestJudge(t *testing.T) {
	gs := &v1alpha1.GitSource{ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: "flow"}}
	used := usedNames{"ConfigMap shop/a": "ReplicaSet shop/web-1"}
	tests := []struct {
		reason string
		live   *unstructured.Unstructured
		want   verdict
	}{
		{"ours, and nobody needs it", objectOf("Service"), remove},
		{"the same name in another kind is used", objectOf("Secret"), remove},
		{"pods refer to it", objectOf("ConfigMap"), keepForNow},
		{"somebody took our labels away", objectOf("Service", func(u *unstructured.Unstructured) { u.SetLabels(nil) }), forget},
		{"another source of the same name", objectOf("Service", func(u *unstructured.Unstructured) {
			u.SetLabels(map[string]string{v1alpha1.LabelSource: "shop", v1alpha1.LabelSourceNamespace: "other"})
		}), forget},
		{"the owner said no", objectOf("Service", annotated(v1alpha1.AnnotationPrune, "disabled")), forget},
		{"the owner said not to touch it", objectOf("Service", annotated(v1alpha1.AnnotationReconcile, "disabled")), forget},
		{"a claim has data", objectOf("PersistentVolumeClaim"), forget},
		{"a namespace has everything", objectOf("Namespace"), forget},
		{"a CRD has all its objects", objectOf("apiextensions.k8s.io:CustomResourceDefinition"), forget},
		{"the owner said yes", objectOf("PersistentVolumeClaim", annotated(v1alpha1.AnnotationPrune, "enabled")), remove},
		{"a Deployment bears no labels of ours, but our manager", objectOf("apps:Deployment", func(u *unstructured.Unstructured) {
			u.SetLabels(nil)
			u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: v1alpha1.ManagerGitSync, Operation: metav1.ManagedFieldsOperationApply}})
		}), remove},
		{"a Deployment that was made anew by another hand", objectOf("apps:Deployment"), forget},
		{"a Deployment has adopted it", objectOf("apps:ReplicaSet", controlled), forget},
		{"an operator has adopted it", objectOf("Service", controlled), forget},
		{"an owner that does not control it", objectOf("Service", func(u *unstructured.Unstructured) {
			u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: "1"}})
		}), remove},
		{"a plan ends the hold of its Deployment", objectOf("tranche.dev:BatchRelease", controlled), remove},
		{"a namespace of another API is a plain object", objectOf("example.org:Namespace"), remove},
	}
	for _, tt := range tests {
		got, because := judge(tt.live, gs, used)
		if got != tt.want {
			t.Errorf("%s: %v, want %v", tt.reason, got, tt.want)
		}
		if (because == "") != (got == remove) {
			t.Errorf("%s: says %q", tt.reason, because)
		}
	}
}
