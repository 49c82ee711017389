package plan

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// Problem is an error that a user or an operator can act on. The reconciler that meets
// it maps it to a condition, an event, a log line and the time of a retry, in one place.
type Problem struct {
	// Reason is a CamelCase word, the same in condition and event.
	Reason string
	// Where is what the problem is about: a file, an object, a field, a URL.
	Where string
	// Err is the fact at the root.
	Err error
	// Hint tells what to do; empty where the fact says it.
	Hint string
	// Retry is true if the same sync may succeed later without a change by a user.
	Retry bool
}

// Error says where, what, and what to do about it. The name of a file may have control
// characters, which could write a line of their own, or turn the direction of writing.
func (p *Problem) Error() string {
	var b strings.Builder
	if strings.ContainsFunc(p.Where, func(r rune) bool { return !unicode.IsPrint(r) }) {
		b.WriteString(strconv.Quote(p.Where) + ": ")
	} else if p.Where != "" {
		b.WriteString(p.Where + ": ")
	}
	if p.Err != nil {
		b.WriteString(p.Err.Error())
	}
	if p.Hint != "" {
		b.WriteString("; " + p.Hint)
	}
	return b.String()
}

// Unwrap returns the fact at the root.
func (p *Problem) Unwrap() error { return p.Err }

// Problems is a list of problems that were found together, and is an error.
type Problems []*Problem

// maxListed is how many problems an error lists before it only counts them.
const maxListed = 3

// Error lists the first three problems, and how many more there are.
func (ps Problems) Error() string {
	listed := make([]string, 0, maxListed)
	for _, p := range ps[:min(len(ps), maxListed)] {
		listed = append(listed, p.Error())
	}
	s := strings.Join(listed, " | ")
	if more := len(ps) - maxListed; more > 0 {
		s += fmt.Sprintf(" | and %d more", more)
	}
	return s
}

// Unwrap returns the problems one by one.
func (ps Problems) Unwrap() []error {
	errs := make([]error, len(ps))
	for i, p := range ps {
		errs[i] = p
	}
	return errs
}

// ProblemsOf makes a list of problems of an error, however they are wrapped.
// Nothing but problems is in the list: it is empty for other errors.
func ProblemsOf(err error) Problems {
	if err == nil {
		return nil
	}
	if ps, ok := errors.AsType[Problems](err); ok {
		return ps
	}
	if p, ok := errors.AsType[*Problem](err); ok {
		return Problems{p}
	}
	return nil
}
