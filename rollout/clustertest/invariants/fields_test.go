package invariants

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Fields say which manager has written if times, which are in seconds, do not.
func TestWriter(t *testing.T) {
	entry := func(manager, fields string, second int) metav1.ManagedFieldsEntry {
		e := metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Time: &metav1.Time{Time: time.Unix(int64(second), 0)},
			FieldsV1: &metav1.FieldsV1{},
		}
		e.FieldsV1.SetRawBytes([]byte(fields))
		return e
	}
	const size, none = `{"f:spec":{"f:replicas":{}}}`, `{}`
	for _, tc := range []struct {
		because       string
		before, after []metav1.ManagedFieldsEntry
		writer, owner string
	}{
		{"the only one", nil, []metav1.ManagedFieldsEntry{entry(native, size, 1)}, native, native},
		{
			"the later one", []metav1.ManagedFieldsEntry{entry(native, size, 1)},
			[]metav1.ManagedFieldsEntry{entry(native, none, 1), entry(tranche, size, 2)}, tranche, tranche,
		},
		{"in the same second, Tranche from the native one", []metav1.ManagedFieldsEntry{entry(native, size, 1)},
			[]metav1.ManagedFieldsEntry{entry(native, none, 1), entry(tranche, size, 1)}, tranche, tranche},
		{"in the same second, the native one from Tranche", []metav1.ManagedFieldsEntry{entry(native, none, 1), entry(tranche, size, 1)},
			[]metav1.ManagedFieldsEntry{entry(native, size, 1), entry(tranche, none, 1)}, native, native},
	} {
		rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{ManagedFields: tc.after}}
		if got := Writer(rs, tc.before); got != tc.writer {
			t.Errorf("%s: written by %s, want %s", tc.because, got, tc.writer)
		}
		if got := resizer(&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{ManagedFields: tc.before}}, rs); got != tc.owner {
			t.Errorf("%s: resized by %s, want %s", tc.because, got, tc.owner)
		}
	}
}
