// Package unknown has the reasons for which a measurement has no value.
//
// An answer that is not exactly one finite number proves nothing, neither that a revision is
// good nor that it is bad. So each has a reason of its own here, and none becomes a number.
package unknown

import (
	"errors"
	"time"
)

// Reason says why there is no value. It has no text of the server that answered.
type Reason string

const (
	// NoData: the answer has no series, or no sample.
	NoData Reason = "NoData"
	// NotANumber: the value is NaN.
	NotANumber Reason = "NotANumber"
	// Infinite: the value is +Inf or -Inf.
	Infinite Reason = "Infinite"
	// SeveralSeries: the answer has more than one series.
	SeveralSeries Reason = "SeveralSeries"
	// PartialAnswer: the server warns that the answer may be incomplete.
	PartialAnswer Reason = "PartialAnswer"
	// NotAnAnswer: the answer does not have the form that the provider documents.
	NotAnAnswer Reason = "NotAnAnswer"
	// TooLarge: the answer is longer than may be read.
	TooLarge Reason = "TooLarge"
	// ProviderUnavailable: the server cannot be reached, or answers with a status of 5xx.
	ProviderUnavailable Reason = "ProviderUnavailable"
	// RateLimited: the server takes no more queries at present.
	RateLimited Reason = "RateLimited"
	// QueryRefused: the server answers with a status of 4xx.
	QueryRefused Reason = "QueryRefused"
	// ClockSkew: the clock of the server and that of the controller differ.
	ClockSkew Reason = "ClockSkew"
	// Timeout: the server did not answer in time.
	Timeout Reason = "Timeout"
	// AddressRefused: a release may not have this address asked.
	AddressRefused Reason = "AddressRefused"
	// ProviderNotConfigured: the controller's configuration does not have the provider.
	ProviderNotConfigured Reason = "ProviderNotConfigured"
	// CredentialsUnreadable: the account of the release cannot read the Secret, or a key is missing.
	CredentialsUnreadable Reason = "CredentialsUnreadable"
	// ConditionFailed: the condition cannot be evaluated on this answer.
	ConditionFailed Reason = "ConditionFailed"
	// JobNotCreated: the API server refuses the Job.
	JobNotCreated Reason = "JobNotCreated"
	// JobWithoutResult: the Job ended, and not by an exit code of its own.
	JobWithoutResult Reason = "JobWithoutResult"
	// JobDeadline: the Job did not end in time.
	JobDeadline Reason = "JobDeadline"
)

// Error is a measurement without a value.
type Error struct {
	Reason Reason
	// Detail explains the reason. It has numbers and words of this program only: no part of an
	// answer, no address and no secret.
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
		return string(e.Reason)
	}
	return string(e.Reason) + ": " + e.Detail
}

// New returns an error that will not pass by itself.
func New(reason Reason, detail string) *Error { return &Error{Reason: reason, Detail: detail} }

// Passing returns an error that may pass by itself.
func Passing(reason Reason, detail string) *Error {
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
