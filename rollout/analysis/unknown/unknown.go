// Package unknown has the reasons for which a measurement has no value.
//
// An answer that is not exactly one finite number proves nothing, neither that a revision is
// good nor that it is bad. So each has a reason of its own here, and none becomes a number.
package unknown

import (
	"errors"
	"time"

	"github.com/tranche-dev/tranche/rollout/engine/verdict"
)

// Reasons, as the engine knows them. [Error.Detail] tells those of one reason apart.
const (
	NoData              = verdict.NoData
	NotANumber          = verdict.NotANumber
	TotalIsZero         = verdict.TotalIsZero
	SeveralSeries       = verdict.SeveralSeries
	PartialAnswer       = verdict.PartialAnswer
	BadAnswer           = verdict.BadAnswer
	ProviderUnavailable = verdict.ProviderUnavailable
	ProviderRefused     = verdict.ProviderRefused
	ClockSkew           = verdict.ClockSkew
	SecretNotReadable   = verdict.SecretNotReadable
	JobNotRun           = verdict.JobNotRun
	ConditionFailed     = verdict.ConditionFailed
)

// Error is a measurement without a value.
type Error struct {
	Reason string
	// Detail explains the reason. It has numbers and words of this program only: no part of an
	// answer, no address and no secret. The one exception is what a quota, an admission policy or a
	// webhook of the cluster says when it refuses a Job.
	Detail string
	// Retry: the same question may have a value later.
	Retry bool
	// After is the least time until then that the server asks for; 0: it asks for none.
	After time.Duration
	// Pending: the question is not answered yet. Reason is then why it takes long, or empty.
	Pending bool
}

func (e *Error) Error() string {
	switch {
	case e.Reason == "":
		return e.Detail
	case e.Detail == "":
		return e.Reason
	}
	return e.Reason + ": " + e.Detail
}

// New returns an error that will not pass by itself.
func New(reason string, detail string) *Error { return &Error{Reason: reason, Detail: detail} }

// Passing returns an error that may pass by itself.
func Passing(reason string, detail string) *Error {
	return &Error{Reason: reason, Detail: detail, Retry: true}
}

// Of returns the reason of an error. An error of another type is one of this program, and may
// pass. Its text is not shown: it may contain an address.
func Of(err error) *Error {
	var u *Error
	if errors.As(err, &u) {
		return u
	}
	return Passing(ProviderUnavailable, "the query failed")
}
