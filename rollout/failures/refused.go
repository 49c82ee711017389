package failures

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Refused reports whether the API server refuses a write, and will until a user changes
// something.
func Refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// NoDryRun reports whether a webhook does not support dry runs. Other denials have its
// code, too.
func NoDryRun(err error) bool {
	return apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "does not support dry run")
}

// CreationRefused says that the API server does not let a ReplicaSet be made, or the record of
// its release. ReplicaSets that are there may be resized.
type CreationRefused struct{ Err error }

func (e *CreationRefused) Error() string { return e.Err.Error() }
func (e *CreationRefused) Unwrap() error { return e.Err }

// GrowthRefused says that the API server does not let a ReplicaSet grow. Others may.
type GrowthRefused struct {
	Err error
	uid types.UID
}

func (e *GrowthRefused) Error() string { return e.Err.Error() }
func (e *GrowthRefused) Unwrap() error { return e.Err }

// Covers reports whether this size of a ReplicaSet is refused alike. Without an error none is.
func (e *GrowthRefused) Covers(rs *appsv1.ReplicaSet, to int32) bool {
	return e != nil && e.uid == rs.UID && to > ptr.Deref(rs.Spec.Replicas, 1)
}

// Alike reports whether two growths of the same ReplicaSet were refused. One that is nil is like none.
func (e *GrowthRefused) Alike(other *GrowthRefused) bool {
	return e != nil && other != nil && e.uid == other.uid
}

// OfSize returns a [GrowthRefused] for the error of a size that is larger, if the API server
// refuses it. It returns any other error as it is.
func OfSize(rs *appsv1.ReplicaSet, to int32, err error) error {
	refused := &GrowthRefused{Err: err, uid: rs.UID}
	if !Refused(err) || NoDryRun(err) || !refused.Covers(rs, to) {
		return err
	}
	return refused
}
