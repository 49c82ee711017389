package gittree

import (
	"errors"
	"fmt"
	"io"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Exceeded says which limit a repository has hit. It is not tried again until
// something is pushed.
func Exceeded(where, fact, flag string) *plan.Problem {
	p := &plan.Problem{Reason: v1alpha1.ReasonLimitExceeded, Where: where, Err: errors.New(fact)}
	if flag != "" {
		p.Hint = "make it smaller, or raise the controller's " + flag
	}
	return p
}

// IsExceeded reports whether an error says that a limit was hit.
func IsExceeded(err error) bool {
	p, ok := errors.AsType[*plan.Problem](err)
	return ok && p.Reason == v1alpha1.ReasonLimitExceeded
}

// ErrDamaged says that the mirror lacks what it should have.
var ErrDamaged = errors.New("the mirror is damaged")

// Missing says which object could not be read. It hides io.EOF, which callers
// take for an end (G1).
func Missing(what string, h plumbing.Hash, err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%w: reading %s: object %s of the repository: %w", ErrDamaged, what, h, err)
}
