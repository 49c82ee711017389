package main

import (
	"errors"
)

// Exit codes, as `tranche help` and docs/cli.md tell them.
const (
	exitError   = 1
	exitFailed  = 2
	exitTimeout = 3
	exitChanges = 4
)

// codedError is an error that ends the program with a code of its own.
type codedError struct {
	code int
	error
}

func (e codedError) Unwrap() error { return e.error }

// withCode returns an error that ends the program with a code.
func withCode(code int, err error) error { return codedError{code, err} }

// exitCode is the code that an error ends the program with.
func exitCode(err error) int {
	if coded, ok := errors.AsType[codedError](err); ok {
		return coded.code
	}
	return exitError
}
