package managedfields

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

func TestWithoutRollout(t *testing.T) {
	entry := func(manager string, operation metav1.ManagedFieldsOperationType, subresource, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, Subresource: subresource, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const apply, update = metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate
	const strategy, replicas, status = `{"f:spec":{"f:strategy":{}}}`, `{"f:spec":{"f:replicas":{}}}`, `{"f:status":{"f:collisionCount":{}}}`
	ours, counted := entry(v1alpha1.ManagerRollout, update, "", strategy), entry(v1alpha1.ManagerRollout, update, "status", status)
	kubectl, native := entry("kubectl", update, "", replicas), entry("kube-controller-manager", update, "status", status)
	for name, tc := range map[string]struct {
		reason        string
		entries, want []metav1.ManagedFieldsEntry
		changed       bool
	}{
		"nothing of ours": {reason: "there is nothing to write",
			entries: []metav1.ManagedFieldsEntry{kubectl, native}, want: []metav1.ManagedFieldsEntry{kubectl, native}},
		"beside others": {reason: "the fields belong to no manager",
			entries: []metav1.ManagedFieldsEntry{kubectl, ours, counted, native}, want: []metav1.ManagedFieldsEntry{kubectl, native}, changed: true},
		"applied": {reason: "the first install is an apply", entries: []metav1.ManagedFieldsEntry{
			entry(v1alpha1.ManagerRollout, apply, "", strategy), native,
		}, want: []metav1.ManagedFieldsEntry{native}, changed: true},
		"alone": {reason: "an empty list would change nothing",
			entries: []metav1.ManagedFieldsEntry{ours}, want: []metav1.ManagedFieldsEntry{{}}, changed: true},
		"beside gitsync": {reason: "its next apply removes what the manifest is without", changed: true,
			entries: []metav1.ManagedFieldsEntry{entry(v1alpha1.ManagerGitSync, apply, "", replicas), ours, counted},
			want:    []metav1.ManagedFieldsEntry{entry(v1alpha1.ManagerGitSync, apply, "", `{"f:spec":{"f:replicas":{},"f:strategy":{}}}`)}},
		"beside an update of gitsync": {reason: "an apply of gitsync does not remove what it owns by an update", changed: true,
			entries: []metav1.ManagedFieldsEntry{entry(v1alpha1.ManagerGitSync, update, "", replicas), ours},
			want:    []metav1.ManagedFieldsEntry{entry(v1alpha1.ManagerGitSync, update, "", replicas)}},
	} {
		t.Run(name, func(t *testing.T) {
			got, changed, err := withoutRollout(tc.entries)
			if err != nil || changed != tc.changed {
				t.Errorf("%s: changed=%t, %v", tc.reason, changed, err)
			}
			if diff := cmp.Diff(describe(tc.want), describe(got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// describe shows entries as text.
func describe(entries []metav1.ManagedFieldsEntry) []string {
	var all []string
	for _, e := range entries {
		fields := ""
		if e.FieldsV1 != nil {
			fields = e.FieldsV1.String()
		}
		all = append(all, e.Manager+" "+string(e.Operation)+" "+e.Subresource+" "+fields)
	}
	return all
}
