package gitserver

import (
	"errors"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// ErrNoRoom says that a fetch would make the mirror larger than it may be.
var ErrNoRoom = errors.New("no room in the mirror")

// StorageProblem puts an error of the controller's disk in words.
func StorageProblem(err error) error {
	return &plan.Problem{
		Reason: v1alpha1.ReasonStorageFailed, Where: "the controller's storage", Err: err,
		Hint: "give --storage-path a folder that it may write and that has space", Retry: true,
	}
}
