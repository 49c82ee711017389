package plan

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// HintOlderCRD is what to do where the API server does not know a field of Tranche's
// kinds.
const HintOlderCRD = "the CustomResourceDefinition is older than the controller; apply config/crd of its version"

// ExplainUnknownField adds [HintOlderCRD] to the API server's answer to a strict write of
// a field that it does not know. It returns any other error as it is. Without strict
// validation the API server drops such a field silently, and the controller's memory
// would be lost.
func ExplainUnknownField(err error) error {
	if !IsUnknownField(err) {
		return err
	}
	return fmt.Errorf("%w; %s", err, HintOlderCRD)
}

// IsUnknownField reports whether the API server has refused a strict write for a field
// that it does not know.
func IsUnknownField(err error) bool {
	return apierrors.IsBadRequest(err) && strings.Contains(err.Error(), `unknown field "`)
}
