package feed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// Stale says that the rows may be old.
type Stale struct {
	// Since is the last time at which all was well.
	Since time.Time `json:"since"`
	// Reason is a sentence.
	Reason string `json:"reason"`
}

// DownError is the error of a request that the API server does not answer.
type DownError struct{ Since time.Time }

// Error has no words of the cause: client-go would take some of them for a reason to try again.
func (e *DownError) Error() string {
	return "the API server does not answer since " + e.Since.UTC().Format(time.TimeOnly) + " UTC"
}

// health is what is known of the API server: whether it answers, and which lists and watches of
// the informers have failed. The informers themselves only try again.
type health struct {
	known  sync.Mutex
	good   time.Time     // when all was well last
	down   *Stale        // nil: it answers
	back   chan struct{} // closed once it answers again; nil while it answers
	failed map[string]failure
}

// failure is why a list or a watch has failed, at its address.
type failure struct {
	since time.Time
	why   string
}

// Down returns the error of an API server that does not answer, or nil.
func (h *health) Down() *DownError {
	h.known.Lock()
	defer h.known.Unlock()
	if h.down == nil {
		return nil
	}
	return &DownError{h.down.Since}
}

// asked notes the answer to a question, and returns what of the rows is stale.
func (h *health) asked(at time.Time, err error, grace time.Duration) *Stale {
	h.known.Lock()
	defer h.known.Unlock()
	if err != nil {
		if h.down == nil {
			h.down, h.back = &Stale{h.good.UTC(), "The API server does not answer: " + err.Error()}, make(chan struct{})
		}
		return h.down
	}
	if h.down != nil {
		close(h.back)
		h.down, h.back = nil, nil
	}
	for path, f := range h.failed {
		if at.Sub(f.since) >= grace { // an informer tries again within a second or two
			return &Stale{f.since.UTC(), "This dashboard cannot follow " + path + ": " + f.why}
		}
	}
	h.good = at
	return nil
}

// transport is a function as an http.RoundTripper.
type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// informers is the transport of the informers. It notes which list or watch has failed. While the
// API server does not answer, a request waits until it is back. Without that the informer would
// pause for up to a minute, and be late.
func (h *health) informers(next http.RoundTripper) http.RoundTripper {
	return transport(func(r *http.Request) (*http.Response, error) {
		h.known.Lock()
		back := h.back
		h.known.Unlock()
		if back != nil {
			select {
			case <-back:
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		}
		res, err := next.RoundTrip(r)
		query := r.URL.Query()
		if !query.Has("watch") && !query.Has("resourceVersion") {
			return res, err // discovery
		}
		h.known.Lock()
		defer h.known.Unlock()
		if h.failed == nil {
			h.failed = map[string]failure{}
		}
		f, known := h.failed[r.URL.Path]
		if !known {
			f.since = time.Now()
		}
		switch {
		case err != nil && r.Context().Err() != nil:
		case err != nil:
			f.why = err.Error()
			h.failed[r.URL.Path] = f
		case res.StatusCode == http.StatusGone, res.StatusCode == http.StatusUnprocessableEntity: // it lists instead
		case res.StatusCode >= http.StatusBadRequest:
			f.why = res.Status
			h.failed[r.URL.Path] = f
		case query.Has("watch"):
			delete(h.failed, r.URL.Path)
		}
		return res, err
	})
}

// answersWithin is how long a request of a person may wait for the API server.
const answersWithin = 5 * time.Second

// Answers is a transport whose requests fail at once while the API server does not answer, and
// within seconds if it ceases to.
func (c *Cluster) Answers(next http.RoundTripper) http.RoundTripper {
	return transport(func(r *http.Request) (*http.Response, error) {
		if down := c.Down(); down != nil {
			return nil, down
		}
		since := time.Now()
		ctx, stop := context.WithCancel(r.Context())
		limit := time.AfterFunc(answersWithin, stop)
		res, err := next.RoundTrip(r.WithContext(ctx))
		limit.Stop() // a long list may take its time
		if err != nil {
			stop()
			if r.Context().Err() == nil {
				err = &DownError{since}
			}
			return nil, err
		}
		res.Body = &limited{res.Body, stop}
		return res, nil
	})
}

// limited ends the context of a request with its body.
type limited struct {
	io.ReadCloser
	stop func()
}

func (l *limited) Close() error {
	defer l.stop()
	return l.ReadCloser.Close()
}

// Probe asks the API server whether it is ready, until the context ends. The feed is stale while
// it does not answer, and while an informer cannot follow its kind.
func (c *Cluster) Probe(ctx context.Context, config *rest.Config, every time.Duration) error {
	config = rest.CopyConfig(config)
	config.Timeout = max(every*3/2, time.Second)
	asks, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	c.known.Lock()
	c.good = time.Now()
	c.known.Unlock()
	go func() {
		for tick := time.NewTicker(every); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				at := time.Now()
				_, err := asks.RESTClient().Get().AbsPath("/readyz").MaxRetries(0).DoRaw(ctx)
				if status := apierrors.APIStatus(nil); errors.As(err, &status) {
					if code := status.Status().Code; code >= http.StatusInternalServerError {
						err = fmt.Errorf("it says that it is not ready (%d)", code) // its text has many lines
					} else {
						err = nil // it answers, if not that
					}
				}
				c.SetStale(c.asked(at, err, every))
			}
		}
	}()
	return nil
}
