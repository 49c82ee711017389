package fieldmanager

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Others lose a field of gitsync if they will not set it again by themselves.
func TestClaim(t *testing.T) {
	const update, apply = metav1.ManagedFieldsOperationUpdate, metav1.ManagedFieldsOperationApply
	const image = `{"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:name":{},"f:image":{}}}}}`
	const pullPolicy = `{"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{"f:imagePullPolicy":{}}}}}`
	entry := func(manager string, operation metav1.ManagedFieldsOperationType, subresource, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, APIVersion: "v1", Subresource: subresource,
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}
	}
	older := entry("kubectl-create", update, "", image)
	older.APIVersion = "v1beta1"
	for reason, tc := range map[string]struct {
		other metav1.ManagedFieldsEntry
		want  bool
	}{
		"kubectl create has made it":          {entry("kubectl-create", update, "", image), true},
		"a default goes with its list item":   {entry("helm", update, "", pullPolicy), true},
		"Flux has applied it":                 {entry("kustomize-controller", apply, "", image), true},
		"an operator applies it, too":         {entry("example", apply, "", image), false},
		"rollout writes it":                   {entry(v1alpha1.ManagerRollout, update, "", image), false},
		"a status is no field of Git":         {entry("kubelet", update, "status", image), false},
		"another field":                       {entry("kubectl-label", update, "", `{"f:metadata":{"f:labels":{"f:team":{}}}}`), false},
		"paths of another version may differ": {older, false},
	} {
		t.Run(reason, func(t *testing.T) {
			u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod"}}
			u.SetManagedFields([]metav1.ManagedFieldsEntry{tc.other, entry(v1alpha1.ManagerGitSync, apply, "", image)})
			if patch, err := claim(u); err != nil || (patch != nil) != tc.want {
				t.Errorf("%v, %v", patch, err)
			}
			u.SetManagedFields([]metav1.ManagedFieldsEntry{tc.other})
			if patch, err := claim(u); err != nil || patch != nil {
				t.Errorf("before gitsync has applied anything: %v, %v", patch, err)
			}
		})
	}
}
