// Package web sends a request to a server of the user, and evaluates a condition on its answer.
//
// The request of one measurement always has the same Idempotency-Key. It may be sent again
// after a crash or a failure, and the server can know that it is the same. An answer with a
// status of 3xx, 4xx or 5xx is no result: a load balancer sends such without the server.
package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/tranche-dev/tranche/rollout/analysis/outbound"
	"github.com/tranche-dev/tranche/rollout/analysis/unknown"
)

// evalTime is how long a condition may take. A tenant writes it.
const evalTime = time.Second

// Request is one request.
type Request struct {
	Client *outbound.Client
	URL    string
	// Method; empty: GET without a body, POST with one.
	Method string
	// Header is sent with it, as for the credentials.
	Header http.Header
	// Body is JSON; empty: none.
	Body []byte
	// Key names the measurement, for the server.
	Key string
}

// Condition is evaluated on an answer. The body is what its JSON says, or its text if it is
// not JSON.
type Condition interface {
	Eval(ctx context.Context, status int, body any) (bool, error)
}

// Send sends the request and reports whether the condition holds on the answer.
func (q Request) Send(ctx context.Context, holds Condition) (bool, error) {
	method := q.Method
	switch {
	case method == "" && len(q.Body) > 0:
		method = http.MethodPost
	case method == "":
		method = http.MethodGet
	}
	r, err := http.NewRequestWithContext(ctx, method, q.URL, bytes.NewReader(q.Body))
	if err != nil {
		return false, unknown.New(unknown.ProviderRefused, "the address is not a URL")
	}
	if len(q.Body) > 0 {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, values := range q.Header {
		r.Header[http.CanonicalHeaderKey(name)] = values
	}
	r.Header.Set("Idempotency-Key", q.Key)
	answer, err := q.Client.Do(r)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, evalTime)
	defer cancel()
	ok, err := holds.Eval(ctx, answer.Status, decode(answer.Body))
	if err != nil { // its text may have a part of the body
		return false, unknown.New(unknown.ConditionFailed, "the condition cannot be evaluated on the answer; use has(body.field)")
	}
	return ok, nil
}

// decode returns what an answer's JSON says, or its text. Whole numbers stay whole.
func decode(text []byte) any {
	var body any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&body); err != nil {
		return string(text)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return string(text)
	}
	return numbers(body)
}

// numbers replaces each json.Number by an int64 or a float64.
func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		if f, err := v.Float64(); err == nil {
			return f
		}
		return v.String()
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = numbers(v[k])
		}
	}
	return v
}
