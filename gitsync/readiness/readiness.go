package readiness

import (
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Unready is an object that is applied and not ready by the rules of kstatus.
type Unready struct {
	inventory.Entry
	Failed  bool
	message string
}

// Explain returns the object and the message in one line.
func (u Unready) Explain() string {
	return u.String() + ": " + strings.TrimSuffix(plan.OneLine(u.message), ".")
}

// Of returns what of an object is not ready, or nil. An object that
// kstatus does not know counts as ready.
func Of(u *unstructured.Unstructured) *Unready {
	result, err := status.Compute(u)
	switch {
	case err == nil && result.Status == status.CurrentStatus && isNew(u):
		return &Unready{Entry: inventory.Of(u), message: "no controller has written its status yet"}
	case err != nil || result.Status == status.CurrentStatus:
		return nil //nolint:nilerr // a status that cannot be read says nothing
	}
	return &Unready{inventory.Of(u), result.Status == status.FailedStatus, result.Message}
}

// isNew reports whether an object is of a kind of ours and has no status yet. To kstatus, an
// object without a status is ready.
func isNew(u *unstructured.Unstructured) bool {
	_, looked, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
	return u.GroupVersionKind().Group == v1alpha1.Group && !looked
}
