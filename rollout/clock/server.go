package clock

import (
	"net/http"
	"sync"
	"time"
)

// Server tells the age of the times that the cluster writes into objects. It knows the clock of
// the API server by the dates of its answers. The clock of this machine may be another, and both
// may jump.
type Server struct {
	now    func() time.Time
	uptime func() time.Duration

	mu       sync.Mutex
	runs     []run
	answered time.Duration // the uptime of the last answer
}

// run is how the clock of the server goes between two jumps.
type run struct {
	began time.Duration // in uptime
	// The clock is between least and most ahead of uptime, from the Unix epoch on.
	least, most time.Duration
}

const (
	// dateUnit is what the date of an answer is rounded down to.
	dateUnit = time.Second
	// keptRuns is how many are kept. Two servers with clocks apart, which answer in turn, make
	// many.
	keptRuns = 16
)

// NewServer returns a Server by two functions, as those of [New].
func NewServer(now func() time.Time, uptime func() time.Duration) *Server {
	return &Server{now: now, uptime: uptime}
}

// Since returns for how long the clock of the API server has shown more than t, exact to a second.
// A jump of that clock since the first answer does not count. If the clock has shown t twice, the
// second time counts, and if a jump has left t out, the time of the jump does. Before the first
// answer, Since goes by the clock of the machine.
func (s *Server) Since(t time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.runs) == 0 {
		return s.now().Sub(t)
	}
	now, at := s.uptime(), time.Duration(t.UnixNano())
	newest := len(s.runs) - 1
	for i, end := newest, now; i >= 0; i-- {
		r := s.runs[i]
		if shown := at - r.least; (i == 0 || shown >= r.began-dateUnit-smallestJump) && at-r.most <= end {
			return now - min(shown, end)
		}
		end = r.began
	}
	for i := newest; i > 0; i-- {
		jumped := s.runs[i].began
		if at-s.runs[i-1].least >= jumped && at-s.runs[i].least < jumped {
			return now - jumped
		}
	}
	return now - (at - s.runs[newest].least) // it has not shown t yet
}

// note notes an answer to what was sent at an uptime. The server has dated it since then.
func (s *Server) note(sent time.Duration, date time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	came := s.uptime()
	at := time.Duration(date.UnixNano())
	now := run{began: s.answered, least: at - came, most: at + dateUnit - sent}
	s.answered = came
	if len(s.runs) == 0 {
		s.runs = append(s.runs, now)
		return
	}
	last := &s.runs[len(s.runs)-1]
	switch least, most := max(last.least, now.least), min(last.most, now.most); {
	case least <= most:
		last.least, last.most = least, most
	case least-most < smallestJump: // the clock is corrected little by little
		last.least, last.most = now.least, now.most
	default:
		if s.runs = append(s.runs, now); len(s.runs) > keptRuns {
			s.runs = s.runs[1:]
		}
	}
}

// Wrap lets a connection to the API server tell its time.
func (s *Server) Wrap(next http.RoundTripper) http.RoundTripper { return dated{next, s} }

type dated struct {
	http.RoundTripper
	to *Server
}

func (d dated) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := d.to.uptime()
	resp, err := d.RoundTripper.RoundTrip(r)
	if err != nil {
		return resp, err
	}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		d.to.note(sent, date)
	}
	return resp, nil
}
