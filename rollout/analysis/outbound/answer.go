package outbound

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tranche-dev/tranche/rollout/analysis/unknown"
)

// Answer is one whole answer of a server.
type Answer struct {
	Status int
	Body   []byte
	// Skew is how far the server's clock is ahead of the controller's, where the answer says so.
	Skew time.Duration
}

// Do sends a request and reads the whole answer. An answer that no provider can use is an
// *unknown.Error: a status of 3xx, 4xx or 5xx, or more than 1 MiB.
func (c *Client) Do(r *http.Request) (*Answer, error) {
	ctx := r.Context()
	response, err := c.http.Do(r)
	if err != nil {
		return nil, failure(ctx, err)
	}
	defer response.Body.Close()
	if err := c.statusError(response); err != nil {
		_, _ = io.CopyN(io.Discard, response.Body, 4<<10) // so that a short answer leaves the connection usable
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, failure(ctx, err)
	case len(body) > maxBody:
		return nil, unknown.New(unknown.BadAnswer, "the answer has more than 1 MiB")
	}
	a := &Answer{Status: response.StatusCode, Body: body}
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		a.Skew = date.Sub(c.now())
	}
	return a, nil
}

// CheckClock returns an error for a server whose clock is not the controller's. A query about
// a window would be about another one.
func (a *Answer) CheckClock() error {
	// The header has whole seconds.
	if off := a.Skew.Abs().Truncate(time.Second); off > maxSkew {
		ahead := "ahead of"
		if a.Skew < 0 {
			ahead = "behind"
		}
		return unknown.Passing(unknown.ClockSkew, fmt.Sprintf("the clock of the server is %s %s the controller's", off, ahead))
	}
	return nil
}

// statusError sorts an answer by its status.
func (c *Client) statusError(r *http.Response) error {
	status := fmt.Sprintf("HTTP %d", r.StatusCode)
	switch code := r.StatusCode; {
	case code == http.StatusTooManyRequests:
		e := unknown.Passing(unknown.ProviderUnavailable, status+": too many requests")
		e.After = c.retryAfter(r.Header)
		return e
	case code == http.StatusRequestTimeout, code == http.StatusGatewayTimeout:
		return unknown.Passing(unknown.ProviderUnavailable, status+": timeout")
	case code >= 500:
		e := unknown.Passing(unknown.ProviderUnavailable, status)
		e.After = c.retryAfter(r.Header)
		return e
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return unknown.New(unknown.ProviderRefused, status+"; check the credentials and the rights of their user")
	case code >= 400:
		return unknown.New(unknown.ProviderRefused, status)
	case code >= 300:
		return unknown.New(unknown.BadAnswer, status+"; redirects are not followed, name the server itself")
	}
	return nil
}

// maxRetryAfter bounds what a server may ask for, so that one answer does not end an analysis.
const maxRetryAfter = 10 * time.Minute

// retryAfter returns how long a server asks its clients to wait: in seconds, or until a time
// by its own clock.
func (c *Client) retryAfter(h http.Header) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if text == "" {
		text = strings.TrimSpace(h.Get("X-RateLimit-Reset")) // Datadog's
	}
	if seconds, err := strconv.Atoi(text); err == nil {
		return min(max(0, time.Duration(min(seconds, 1e6))*time.Second), maxRetryAfter)
	}
	until, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	now := c.now()
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(0, until.Sub(now)), maxRetryAfter)
}

// Timeout returns a context that ends after the time that a query may take.
func Timeout(ctx context.Context, given, otherwise time.Duration) (context.Context, context.CancelFunc) {
	if given <= 0 {
		given = otherwise
	}
	return context.WithTimeout(ctx, given)
}
