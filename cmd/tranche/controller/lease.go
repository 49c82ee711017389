package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/leaderelection"
	"sigs.k8s.io/controller-runtime/pkg/recorder"
)

// The times of the lease. A leader that cannot renew it stops writing after
// renewDeadline, and another one begins after leaseDuration at the earliest. The requests
// that were sent before have the time between the two to arrive.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// lease is the lease of the leader. It knows how long the lease is surely this process's
// own, and lets nothing be written after that. This holds for the guard on the clients of
// the cluster and for a push. client-go alone lets a leader that was suspended go on for
// renewDeadline after it has come back.
//
// The time is that of [uptime], from before the request that renewed the lease: the
// others count from after it. A virtual machine that is paused may have a clock that
// stands still. Only the resourceVersions that each write is conditional on protect a
// decision then.
//
// A nil lease is that of a controller which is the only one.
type lease struct {
	resourcelock.Interface
	now func() time.Duration

	mu      sync.Mutex
	leads   bool
	renewed time.Duration // when, as now says
	because error         // why it is not ours any more
	other   string        // who else had it, and the renewal, when it was read last
	changed time.Duration // when that was first read, as now says
	lost    chan struct{} // closed when it is lost, and not when it is given up
}

// newLease makes the lease that a manager's options name. Its own client has no guard.
func newLease(config *rest.Config, events *leaderEvents, o ctrl.Options) (*lease, error) {
	lock, err := leaderelection.NewResourceLock(rest.CopyConfig(config), events, leaderelection.Options{
		LeaderElection: true, LeaderElectionID: o.LeaderElectionID, LeaderElectionNamespace: o.LeaderElectionNamespace,
		RenewDeadline: renewDeadline,
	})
	if err != nil {
		return nil, fmt.Errorf("preparing the leader's lease: %w", err)
	}
	return &lease{Interface: lock, now: uptime, lost: make(chan struct{})}, nil
}

// Get returns the record of the lease. If another process holds it, this process has lost
// it.
func (l *lease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil && record.HolderIdentity != l.Identity() {
		l.observe(record)
		l.lose(fmt.Errorf("%q has the leader's lease", record.HolderIdentity))
	}
	return record, raw, err
}

// Create takes a lease that no controller has taken before.
func (l *lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	began := l.now()
	err := l.Interface.Create(ctx, record)
	if err == nil {
		l.renew(began, record.HolderIdentity)
	}
	return err
}

// Update takes the lease, renews it, or gives it up.
func (l *lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	began := l.now()
	err := l.Interface.Update(ctx, record)
	if err == nil {
		l.renew(began, record.HolderIdentity)
	}
	return err
}

// renew notes that the lease has been renewed, for that holder.
func (l *lease) renew(at time.Duration, holder string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.because != nil:
	case holder != l.Identity():
		l.because = errors.New("the leader's lease was given up")
	default:
		l.leads, l.renewed = true, at
	}
}

// observe notes who else has the lease. Whether it is renewed is seen by its change, as
// the election sees it: the clocks of two machines may differ.
func (l *lease) observe(record *resourcelock.LeaderElectionRecord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	other := ""
	if record.HolderIdentity != "" {
		other = record.HolderIdentity + " " + record.RenewTime.String()
	}
	if other != l.other {
		l.other, l.changed = other, l.now()
	}
}

// seen reports whether this process leads, and whether any process does.
func (l *lease) seen() (leads, held bool) {
	if l == nil {
		return true, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	leads = l.leads && l.because == nil && l.now()-l.renewed < renewDeadline
	return leads, leads || l.other != "" && l.now()-l.changed < leaseDuration
}

// lose notes that the lease is not ours any more, and will not be: what this process
// remembers may be old.
func (l *lease) lose(because error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loseLocked(because)
}

func (l *lease) loseLocked(because error) {
	if l.leads && l.because == nil {
		l.because = because
		close(l.lost)
	}
}

// mayWrite returns why nothing may be written now. A process that has never led may
// write: it does nothing but pass webhooks on.
func (l *lease) mayWrite() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leads {
		return nil
	}
	since := l.now() - l.renewed
	if since >= leaseDuration {
		l.loseLocked(fmt.Errorf("the leader's lease was not renewed for %s", since.Round(time.Second)))
	}
	switch {
	case l.because != nil:
		return fmt.Errorf("not written: %w", l.because)
	case since >= renewDeadline:
		return fmt.Errorf("not written: the leader's lease was not renewed for %s, and another controller may take it", since.Round(time.Second))
	}
	return nil
}

// guard lets a client write only as long as the lease is surely ours.
func (l *lease) guard(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			return next.RoundTrip(r)
		}
		if err := l.mayWrite(); err != nil {
			if r.Body != nil {
				_ = r.Body.Close() // nothing of it is read
			}
			return nil, err
		}
		return next.RoundTrip(r)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// run runs a manager until it ends, or the lease is lost. It does not wait for the
// manager then: the process is to end at once.
func (l *lease) run(ctx context.Context, start func(context.Context) error) error {
	if l == nil {
		return start(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- start(ctx) }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-l.lost:
			return l.because
		case <-tick.C:
			_ = l.mayWrite() // it finds out that the lease is lost
		}
	}
}

// leaderEvents records the events of the election. The manager that records them is
// made after the lease.
type leaderEvents struct{ record.EventRecorder }

func (e *leaderEvents) GetEventRecorderFor(string) record.EventRecorder { return e }

func (e *leaderEvents) GetEventRecorder(string) recorder.EventRecorder { return nil } // the election has no use for it
