package rollout_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
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

// The API server is restarted in the middle of releases: they go on. This is tested only
// forward. After a restart the watches of the native ReplicaSet controller have ended.
// For a moment it may count a pod as available that it has just deleted. A rollback
// within that moment is decided on its word.
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

// freezer withholds what the watches of one kind bring, from a moment on.
type freezer struct {
	resource string
	frozen   atomic.Bool
}

func (f *freezer) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		answer, err := next.RoundTrip(r)
		if err == nil && r.URL.Query().Get("watch") == "true" && strings.HasSuffix(r.URL.Path, "/"+f.resource) {
			answer.Body = &frozenBody{ReadCloser: answer.Body, of: f, done: r.Context().Done()}
		}
		return answer, err
	})
}

type frozenBody struct {
	io.ReadCloser
	of   *freezer
	done <-chan struct{}
}

func (b *frozenBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	for b.of.frozen.Load() {
		select {
		case <-b.done:
			return 0, io.ErrClosedPipe
		case <-time.After(10 * time.Millisecond):
		}
	}
	return n, err
}

// writes are those that the API server has made.
func (q *requests) writes() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(q.made), func(line string) bool {
		return strings.HasPrefix(line, http.MethodGet) || !strings.Contains(line, " 20")
	})
}

// waitFor waits until a leader asks for something more of a namespace.
func (q *requests) waitFor(t *testing.T, ns string) {
	t.Helper()
	asked := q.of("", "/namespaces/"+ns)
	clustertest.Wait(t, "the old leader to decide", func() error {
		if q.of("", "/namespaces/"+ns) == asked {
			return errors.New("it asks for nothing")
		}
		return nil
	})
}

// A leader that was suspended sees Deployments and ReplicaSets as they are, and
// BatchReleases as they were: it writes nothing of what it decides then. It would
// scale the step back, and hold the Deployment at the template of the release before.
func TestLeader_OldView(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	var calls requests
	releases := &freezer{resource: "batchreleases"}
	startControllerIn(t, s.c, s.ns, releases.wrap, calls.count)
	s.install(4)
	s.plan("1", "50%", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 2, nil)
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
	releases.frozen.Store(true)
	calls.forget()
	startControllerIn(t, s.c, s.ns)
	s.approve(0)
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 1, map[string]int32{"v1": 2, "v2": 2})
	calls.waitFor(t, s.ns)
	s.bring("v3")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v3": 1})
	calls.waitFor(t, s.ns)
	s.approve(0)
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 1, map[string]int32{"v1": 2, "v3": 2})
	s.approve(1)
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 2, map[string]int32{"v3": 4})
	calls.waitFor(t, s.ns)
	if made := calls.writes(); len(made) > 0 {
		t.Errorf("the old leader has written:\n%s", strings.Join(made, "\n"))
	}
	s.untouched()
}

// A leader that does not know of a plan hands nothing back that another leader has
// taken a hold of.
func TestLeader_OldViewWithoutPlan(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	var calls requests
	releases := &freezer{resource: "batchreleases"}
	startControllerIn(t, s.c, s.ns, releases.wrap, calls.count)
	s.install(2)
	releases.frozen.Store(true)
	startControllerIn(t, s.c, s.ns)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 1, "v2": 1})
	calls.waitFor(t, s.ns)
	s.finish(2)
	if made := calls.writes(); len(made) > 0 {
		t.Errorf("the old leader has written:\n%s", strings.Join(made, "\n"))
	}
	s.untouched()
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
