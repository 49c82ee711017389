package cli

import "errors"

// Exit codes, as `tranche help` and docs/cli.md tell them.
const (
	exitError   = 1
	ExitFailed  = 2
	ExitTimeout = 3
	ExitChanges = 4
)

// codedError is an error that ends the program with a code of its own.
type codedError struct {
	code int
	error
}

func (e codedError) Unwrap() error { return e.error }

// WithCode returns an error that ends the program with a code.
func WithCode(code int, err error) error { return codedError{code, err} }

// ExitCode is the code that an error ends the program with.
func ExitCode(err error) int {
	if coded, ok := errors.AsType[codedError](err); ok {
		return coded.code
	}
	return exitError
}
