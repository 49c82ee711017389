package gitserver

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// longestLimit bounds how long a server may put a source off.
const longestLimit = time.Hour

// RateLimit is the answer of a server that is asked too often, or is overloaded.
type RateLimit struct {
	status int
	// After is when the server wants to be asked again; 0: it does not say.
	After time.Duration
}

// Error says how long the server wants to be left alone.
func (e *RateLimit) Error() string {
	s := fmt.Sprintf("the server limits requests (status %d)", e.status)
	if e.After > 0 {
		s += ", and asks to come again after " + e.After.String()
	}
	return s
}

// limited are the answers that ask for fewer requests: 429, and 503 with a time.
func (r Remote) limited(err error) *plan.Problem {
	answer := answerOf(err)
	if answer == nil {
		return nil
	}
	status := answer.StatusCode
	after := retryAfter(answer.Header.Get("Retry-After"), time.Now())
	if status != http.StatusTooManyRequests && (status != http.StatusServiceUnavailable || after == 0) {
		return nil
	}
	return &plan.Problem{
		Reason: v1alpha1.ReasonRateLimited, Err: &RateLimit{status: status, After: after},
		Hint: "raise spec.interval, use a webhook, or give an account with a higher limit", Retry: true,
	}
}

// answerOf is the unexpected answer of an HTTP server that an error is about; nil: it is
// about none.
func answerOf(err error) *http.Response {
	if u, ok := errors.AsType[*plumbing.UnexpectedError](err); ok {
		err = u.Err // it does not unwrap
	}
	answer, _ := errors.AsType[*githttp.Err](err)
	if answer == nil {
		return nil
	}
	return answer.Response
}

// retryAfter reads the header of that name: a number of seconds, or a date. It returns
// 0 where it is neither, or past.
func retryAfter(header string, now time.Time) time.Duration {
	d := time.Duration(0)
	if n, err := strconv.Atoi(header); err == nil {
		d = time.Duration(min(n, int(longestLimit/time.Second))) * time.Second
	} else if at, err := http.ParseTime(header); err == nil {
		d = at.Sub(now).Round(time.Second)
	}
	return min(max(0, d), longestLimit)
}
