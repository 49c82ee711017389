package fromgit_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/fromgit"
)

func TestReleases_Transform(t *testing.T) {
	apply, update := metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate
	for _, tc := range []struct {
		name string
		by   metav1.ManagedFieldsEntry
		want bool
	}{
		{"an apply of a GitSource", metav1.ManagedFieldsEntry{Manager: v1alpha1.ManagerGitSync, Operation: apply}, true},
		{"a patch of a GitSource", metav1.ManagedFieldsEntry{Manager: v1alpha1.ManagerGitSync, Operation: update}, false},
		{"a status", metav1.ManagedFieldsEntry{Manager: v1alpha1.ManagerGitSync, Operation: apply, Subresource: "status"}, false},
		{"a restore", metav1.ManagedFieldsEntry{Manager: "velero-server", Operation: update}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var releases fromgit.Releases
			br := &v1alpha1.BatchRelease{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1"}}
			br.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: update}, tc.by}
			if _, err := releases.Transform(br); err != nil || br.ManagedFields != nil {
				t.Fatalf("%v, managedFields %v", err, br.ManagedFields)
			}
			if got := releases.Has(br); got != tc.want {
				t.Errorf("has %t, want %t", got, tc.want)
			}
			again := br.DeepCopy()
			again.UID = types.UID("2")
			if releases.Has(again) {
				t.Error("it has one that was created again")
			}
			releases.Forget(client.ObjectKeyFromObject(br))
			if releases.Has(br) {
				t.Error("it is not forgotten")
			}
		})
	}
}
