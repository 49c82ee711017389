package invariants

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A mark before a hold is Tranche's, and young.
func TestIsMarked(t *testing.T) {
	const marks = `{"f:metadata":{"f:annotations":{"f:deployment.kubernetes.io/desired-replicas":{}}}}`
	now := time.Unix(1_000, 0)
	for name, tc := range map[string]struct {
		by, fields string
		age        time.Duration
		want       bool
	}{
		"just before the hold": {tranche, marks, time.Second, true},
		"left behind":          {tranche, marks, lag + time.Second, false},
		"the native one's":     {native, marks, time.Second, false},
		"a write of the size":  {tranche, `{"f:spec":{"f:replicas":{}}}`, time.Second, false},
	} {
		rs := &appsv1.ReplicaSet{}
		e := metav1.ManagedFieldsEntry{Manager: tc.by, Time: &metav1.Time{Time: now.Add(-tc.age)}, FieldsV1: &metav1.FieldsV1{}}
		e.FieldsV1.SetRawBytes([]byte(tc.fields))
		rs.ManagedFields = []metav1.ManagedFieldsEntry{e}
		if got := isMarked(rs, now); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
