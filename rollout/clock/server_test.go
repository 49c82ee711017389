package clock_test

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tranche-dev/tranche/rollout/clock"
)

// answering is an API server whose clock, network and time a test sets.
type answering struct {
	passed time.Duration // of the time that nothing sets
	ahead  time.Duration
	way    time.Duration // how long a request is on its way, and so long an answer
	dated  bool
	shown  map[time.Time]time.Duration // when the clock showed a second last
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (a *answering) uptime() time.Duration { return a.passed }

// written is what the server writes into an object: it keeps whole seconds.
func (a *answering) written() time.Time { return epoch.Add(a.passed + a.ahead).Truncate(time.Second) }

func (a *answering) pass(d time.Duration) {
	for end := a.passed + d; a.passed < end; a.passed += 100 * time.Millisecond {
		a.shown[a.written()] = a.passed
	}
	a.shown[a.written()] = a.passed
}

func (a *answering) RoundTrip(*http.Request) (*http.Response, error) {
	a.pass(a.way)
	w := httptest.NewRecorder()
	if a.dated {
		w.Header().Set("Date", a.written().Format(http.TimeFormat))
	}
	resp := w.Result()
	a.pass(a.way)
	return resp, nil
}

func (a *answering) answer(t *testing.T, s *clock.Server) {
	t.Helper()
	resp, err := s.Wrap(a).RoundTrip(httptest.NewRequest(http.MethodGet, "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
}

// Before an answer with a date, the clock of the machine counts.
func TestServer_NoDate(t *testing.T) {
	a := &answering{ahead: time.Hour, shown: map[time.Time]time.Duration{}}
	s := clock.NewServer(func() time.Time { return epoch.Add(a.passed) }, a.uptime)
	a.answer(t, s)
	a.passed = time.Minute
	if age := s.Since(epoch); age != time.Minute {
		t.Errorf("%s, want a minute", age)
	}
	a.dated = true
	a.answer(t, s)
	if age := s.Since(epoch.Add(time.Hour)); age != time.Minute {
		t.Errorf("%s, want a minute by the clock of the server", age)
	}
}

// The age of what the server has written is how long ago that was, also after jumps of its clock.
// If the clock has shown the same time before, it is when it did last.
func TestServer_Jumps(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		a := &answering{ahead: time.Duration(r.IntN(2000)-1000) * time.Hour, dated: true, shown: map[time.Time]time.Duration{}}
		s := clock.NewServer(time.Now, a.uptime)
		type object struct {
			at      time.Duration
			written time.Time
		}
		var objects []object
		for range 40 {
			if r.IntN(8) == 0 {
				a.ahead += time.Duration(r.IntN(1200)-600) * time.Second
			}
			a.way = 0
			a.pass(time.Duration(r.IntN(500)) * time.Millisecond)
			a.answer(t, s)
			objects = append(objects, object{a.passed, a.written()})
			a.pass(time.Duration(r.IntN(20)) * time.Second)
			a.way = time.Duration(r.IntN(20)) * time.Second / 10
			a.answer(t, s)
			for _, o := range objects {
				age, shown := s.Since(o.written), max(o.at, a.shown[o.written])
				isAge := (a.passed - shown - age).Abs() < 5*time.Second
				if to := o.written.Sub(a.written()); to > 0 && to <= 4*time.Second {
					isAge = isAge || age < 5*time.Second // it is about to be shown again
				}
				for off := -4 * time.Second; off <= 4*time.Second; off += time.Second { // a jump may have been to there
					at, ok := a.shown[o.written.Add(off)]
					isAge = isAge || ok && at > shown && (a.passed-at-age).Abs() < 5*time.Second
				}
				if !isAge {
					t.Fatalf("seed %d, after %s: age %s of %s, want %s", seed, a.passed, age, o.written, a.passed-shown)
				}
			}
		}
	}
}

// A machine that corrects its clock little by little makes no jump, and is followed.
func TestServer_Slews(t *testing.T) {
	a := &answering{dated: true, shown: map[time.Time]time.Duration{}}
	s := clock.NewServer(time.Now, a.uptime)
	for range 10_000 {
		a.passed += 700 * time.Millisecond
		a.ahead += 10 * time.Millisecond
		a.answer(t, s)
	}
	if age := s.Since(epoch.Add(a.passed + a.ahead)); age.Abs() > 2*time.Second {
		t.Errorf("%s, want 0 s", age)
	}
}

// No answer tells no time.
func TestServer_NoAnswer(t *testing.T) {
	s := clock.NewServer(time.Now, func() time.Duration { return 0 })
	resp, err := (&http.Client{Transport: s.Wrap(http.DefaultTransport)}).Get("http://127.0.0.1:1")
	if err == nil {
		_ = resp.Body.Close()
		t.Fatal("nothing answers there")
	}
	if age := s.Since(time.Now().Add(-time.Hour)); (age - time.Hour).Abs() > time.Minute {
		t.Errorf("%s, want an hour", age)
	}
}
