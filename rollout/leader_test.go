package rollout_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// healthyCases are so many of each story, without a fault.
func healthyCases(each int, stories []story) map[string]*faultCase {
	cases := map[string]*faultCase{}
	for range each {
		for _, s := range stories {
			name := fmt.Sprintf("case-%04d", len(cases))
			cases[name] = &faultCase{story: s, name: name, at: -1}
		}
	}
	return cases
}

// newPlay installs cases in a namespace of their own, under a watcher.
func newPlay(t *testing.T, cases map[string]*faultCase) *faultPlay {
	t.Helper()
	c := clustertest.Shared(t)
	ns := c.Namespace(t)
	c.Watch(t, ns)
	p := &faultPlay{T: t, c: c, ns: ns, cases: cases}
	p.install()
	return p
}

// half reports whether a story is well on its way.
func (c *faultCase) half() bool { return c.brought != "" || c.done }

// The API server is restarted in the middle of releases: they go on. Only forward:
// after a restart the native ReplicaSet controller, whose own watches have ended,
// may for a moment count a pod as available that it has just deleted, and a way
// back within that moment is decided on its word.
func TestAPIServerRestart(t *testing.T) {
	p := newPlay(t, healthyCases(9, stories[:1]))
	startControllerIn(t, p.c, p.ns)
	for range 2 {
		p.until("every story to have begun", (*faultCase).half)
		p.c.RestartAPIServer(t)
	}
	p.until("every story to end", func(c *faultCase) bool { return c.done })
	p.judge()
}

// electing makes a manager one of several, of which one works.
func electing(ns string) func(*ctrl.Options) {
	return func(o *ctrl.Options) {
		o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace = true, "tranche-test", ns
		// Long enough for a slow machine: who ends lets the lease go, as the binary does.
		o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = ptr.To(time.Minute), ptr.To(40*time.Second), ptr.To(200*time.Millisecond)
		o.LeaderElectionReleaseOnCancel = true
	}
}

// The leader ends in the middle of releases: another one goes on.
func TestLeaderChange(t *testing.T) {
	t.Parallel()
	p := newPlay(t, healthyCases(2, stories))
	stop := startManager(t, p.c, p.ns, electing(p.ns))
	p.until("every story to have begun", (*faultCase).half)
	startManager(t, p.c, p.ns, electing(p.ns))
	stop()
	p.until("every story to end", func(c *faultCase) bool { return c.done })
	p.judge()
}

// The leader loses its lease without knowing: it goes on writing until it does,
// beside the new one, which harms nothing.
func TestLeaderCutOff(t *testing.T) {
	t.Parallel()
	p := newPlay(t, healthyCases(2, stories))
	var cut atomic.Bool
	withoutLease := func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if cut.Load() && strings.Contains(r.URL.Path, "/leases") {
				return nil, errors.New("cut off")
			}
			return next.RoundTrip(r)
		})
	}
	startManager(t, p.c, p.ns, func(o *ctrl.Options) {
		electing(p.ns)(o)
		o.RenewDeadline, o.LeaseDuration = ptr.To(time.Hour), ptr.To(2*time.Hour) // it does not notice
	}, withoutLease)
	p.until("every story to have begun", (*faultCase).half)
	cut.Store(true)
	startControllerIn(t, p.c, p.ns) // the new one
	p.until("every story to end", func(c *faultCase) bool { return c.done })
	p.judge()
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
