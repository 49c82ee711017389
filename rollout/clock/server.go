package clock

import (
	"net/http"
	"sync/atomic"
	"time"
)

// Server tells the time of the API server, by the dates of its answers. The times that the
// cluster writes into objects are compared with it. The clock of this machine may be another.
type Server struct {
	machine func() time.Time
	last    atomic.Pointer[answer]
}

// NewServer returns a Server. The times of machine must have a monotonic reading, as those of
// [time.Now].
func NewServer(machine func() time.Time) *Server { return &Server{machine: machine} }

// answer is when the last answer came, and the date that it has.
type answer struct{ came, date time.Time }

// Now returns the time of the API server, exact to a second. It is the machine's until the
// first answer. Between answers, it does not jump with the clock of the machine.
func (s *Server) Now() time.Time {
	last := s.last.Load()
	if last == nil {
		return s.machine()
	}
	return last.date.Add(s.machine().Sub(last.came))
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
		d.to.last.Store(&answer{d.to.machine(), date})
	}
	return resp, nil
}
