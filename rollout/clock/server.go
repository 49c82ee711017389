package clock

import (
	"net/http"
	"sync/atomic"
	"time"
)

// Server tells the time of the API server, by the dates of its answers. The times that the
// cluster writes into objects are compared with it. The clock of this machine may be another.
type Server struct{ last atomic.Pointer[answer] }

// answer is when the last answer came, and the date that it has.
type answer struct{ came, date time.Time }

// Now returns the time of the API server, exact to a second. It is the machine's until the
// first answer. Between answers, it does not jump with the clock of the machine.
func (s *Server) Now() time.Time {
	last := s.last.Load()
	if last == nil {
		return time.Now()
	}
	return last.date.Add(time.Since(last.came))
}

// Wrap lets a connection to the API server tell its time.
func (s *Server) Wrap(next http.RoundTripper) http.RoundTripper { return dated{next, s} }

type dated struct {
	http.RoundTripper
	to *Server
}

func (d dated) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := d.RoundTripper.RoundTrip(r)
	if err != nil {
		return resp, err
	}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		d.to.last.Store(&answer{time.Now(), date})
	}
	return resp, nil
}
