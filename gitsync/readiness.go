package gitsync

import (
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// unready is an object that is applied and not ready by the rules of kstatus.
type unready struct {
	inventory.Entry
	failed  bool
	message string
}

func (u unready) said() string {
	return u.String() + ": " + strings.TrimSuffix(plan.OneLine(u.message), ".")
}

// readiness says what of an object is not ready; nil: all is. What kstatus
// cannot tell of counts as ready.
func readiness(u *unstructured.Unstructured) *unready {
	result, err := status.Compute(u)
	switch {
	case err == nil && result.Status == status.CurrentStatus && isNew(u):
		return &unready{Entry: inventory.Of(u), message: "nobody has looked at it yet"}
	case err != nil || result.Status == status.CurrentStatus:
		return nil //nolint:nilerr // a status that cannot be read says nothing
	}
	return &unready{inventory.Of(u), result.Status == status.FailedStatus, result.Message}
}

// isNew reports whether an object is of a kind of ours and nobody has written its
// status yet. To kstatus, who has no status is ready.
func isNew(u *unstructured.Unstructured) bool {
	_, looked, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
	return u.GroupVersionKind().Group == v1alpha1.Group && !looked
}
