package invariants

import (
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NativeManager is the field manager of the native Deployment controller.
const NativeManager = "kube-controller-manager"

// resizer returns the field manager that gave a ReplicaSet its size: the owner of
// spec.replicas. A write that changes the value takes it from its last owner. The times
// of managedFields would not do: they are in seconds.
func resizer(old, rs *appsv1.ReplicaSet) string {
	for _, e := range rs.ManagedFields {
		if owns(e, "f:spec", "f:replicas") {
			return e.Manager
		}
	}
	return Writer(rs, managedFields(old))
}

// Writer returns the field manager that has written an object other than its status. Its
// entry is the latest of those that are not as before. If two are of the same second, it
// is the one that has grown, since the other lost fields to it.
func Writer(o client.Object, before []metav1.ManagedFieldsEntry) string {
	var last metav1.ManagedFieldsEntry
	var lastGrown bool
	for _, e := range o.GetManagedFields() {
		if e.Subresource == "status" || e.Time == nil {
			continue
		}
		old, had := entryOf(before, e)
		if had && equality.Semantic.DeepEqual(old, e) {
			continue
		}
		grown := !had || len(fieldsOf(e)) >= len(fieldsOf(old))
		if last.Time == nil || last.Time.Before(e.Time) || last.Time.Equal(e.Time) && (grown || !lastGrown) {
			last, lastGrown = e, grown
		}
	}
	if last.Manager == "" && len(before) > 0 {
		return Writer(o, nil)
	}
	return last.Manager
}

// entryOf returns the entry of the same manager, operation and subresource.
func entryOf(entries []metav1.ManagedFieldsEntry, e metav1.ManagedFieldsEntry) (metav1.ManagedFieldsEntry, bool) {
	for _, other := range entries {
		if other.Manager == e.Manager && other.Operation == e.Operation && other.Subresource == e.Subresource {
			return other, true
		}
	}
	return metav1.ManagedFieldsEntry{}, false
}

func managedFields(rs *appsv1.ReplicaSet) []metav1.ManagedFieldsEntry {
	if rs == nil {
		return nil
	}
	return rs.ManagedFields
}

func fieldsOf(e metav1.ManagedFieldsEntry) []byte {
	if e.FieldsV1 == nil {
		return nil
	}
	return e.FieldsV1.GetRawBytes()
}

// owns reports whether an entry has a field, by its path in FieldsV1.
func owns(e metav1.ManagedFieldsEntry, path ...string) bool {
	raw := fieldsOf(e)
	for _, p := range path {
		var fields map[string]json.RawMessage
		if json.Unmarshal(raw, &fields) != nil || fields[p] == nil {
			return false
		}
		raw = fields[p]
	}
	return true
}
