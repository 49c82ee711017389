package controller

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// paper is a lease on paper.
type paper struct {
	resourcelock.Interface
	holder string
	takes  func() // what happens while a request is on its way
}

func (p *paper) Identity() string { return "me" }

func (p *paper) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &resourcelock.LeaderElectionRecord{HolderIdentity: p.holder}, nil, nil
}

func (p *paper) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	if p.takes != nil {
		p.takes()
	}
	p.holder = record.HolderIdentity
	return nil
}

// How the lease was renewed decides what is written, and whether the process goes on.
func TestLease_MayWrite(t *testing.T) {
	for _, test := range []struct {
		reason string
		play   func(l *lease, p *paper, clock *time.Duration)
		writes bool
		lost   bool
	}{
		{"who has never led passes webhooks on", func(*lease, *paper, *time.Duration) {}, true, false},
		{"a lease that is fresh is ours", func(l *lease, _ *paper, clock *time.Duration) {
			renewLease(l, "me")
			*clock += renewDeadline - 1
		}, true, false},
		{"a lease that was not renewed in time is not sure to be ours, and may be again", func(l *lease, _ *paper, clock *time.Duration) {
			renewLease(l, "me")
			*clock += renewDeadline
		}, false, false},
		{"it is renewed at last", func(l *lease, _ *paper, clock *time.Duration) {
			renewLease(l, "me")
			*clock += renewDeadline
			_ = l.mayWrite()
			renewLease(l, "me")
		}, true, false},
		{"a process that slept is not the leader, even where nobody has taken the lease", func(l *lease, _ *paper, clock *time.Duration) {
			renewLease(l, "me")
			*clock += leaseDuration
			_ = l.mayWrite()
			renewLease(l, "me")
		}, false, true},
		{"others count from when the request arrived, and we from when it was sent", func(l *lease, p *paper, clock *time.Duration) {
			p.takes = func() { *clock += renewDeadline }
			renewLease(l, "me")
		}, false, false},
		{"another one has the lease, whatever the clock says", func(l *lease, p *paper, _ *time.Duration) {
			renewLease(l, "me")
			p.holder = "other"
			_, _, _ = l.Get(context.Background())
		}, false, true},
		{"it was given up, and the manager ends by itself", func(l *lease, _ *paper, _ *time.Duration) {
			renewLease(l, "me")
			renewLease(l, "")
		}, false, false},
	} {
		t.Run(test.reason, func(t *testing.T) {
			clock, p := time.Duration(0), &paper{}
			l := &lease{Interface: p, now: func() time.Duration { return clock }, lost: make(chan struct{})}
			test.play(l, p, &clock)
			if err := l.mayWrite(); (err == nil) != test.writes {
				t.Errorf("it may write: %v", err)
			}
			lost := false
			select {
			case <-l.lost:
				lost = true
			default:
			}
			if lost != test.lost {
				t.Errorf("it is lost: %t", lost)
			}
		})
	}
}

func renewLease(l *lease, holder string) {
	_ = l.Update(context.Background(), resourcelock.LeaderElectionRecord{HolderIdentity: holder})
}

// The guard lets reads pass, and no write. A lost lease ends the process though its
// manager does not end.
func TestLease_Guard(t *testing.T) {
	clock := time.Duration(0)
	l := &lease{Interface: &paper{}, now: func() time.Duration { return clock }, lost: make(chan struct{})}
	renewLease(l, "me")
	var sent []string
	guard := l.guard(roundTripper(func(r *http.Request) (*http.Response, error) {
		sent = append(sent, r.Method)
		return nil, errors.New("not today")
	}))
	ask := func(methods ...string) {
		for _, m := range methods {
			r, err := http.NewRequest(m, "http://localhost", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = guard.RoundTrip(r) //nolint:bodyclose // it has no answer
		}
	}
	ask(http.MethodGet, http.MethodPatch)
	clock += leaseDuration
	ask(http.MethodGet, http.MethodPut, http.MethodPost, http.MethodPatch, http.MethodDelete)
	if len(sent) != 3 || sent[2] != http.MethodGet {
		t.Errorf("sent %v", sent)
	}
	forever := make(chan error)
	if err := l.run(t.Context(), func(context.Context) error { return <-forever }); err == nil {
		t.Error("it ends without an error")
	}
}
