package gitsync_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/gitsync"
	"github.com/tranche-dev/tranche/gitsync/freshness"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// aheadClock is as much ahead of the machine's as it is set, or of the time at which it was
// stopped.
type aheadClock struct {
	by      atomic.Int64
	stopped atomic.Pointer[time.Time]
}

func (c *aheadClock) Now() time.Time {
	now := time.Now()
	if at := c.stopped.Load(); at != nil {
		now = *at
	}
	return now.Add(time.Duration(c.by.Load()))
}

// stop stops it until the function that it returns is called.
func (c *aheadClock) stop() (again func()) {
	now := time.Now()
	c.stopped.Store(&now)
	return func() { c.stopped.Store(nil) }
}

func (c *aheadClock) pass(d time.Duration) { c.by.Add(int64(d)) }

// blocking renders while nothing blocks it, and while it has a place.
type blocking struct {
	gitsync.Renderer
	on      atomic.Bool
	blocked chan struct{}
	full    atomic.Bool
	free    chan struct{}
	waiting atomic.Int64 // renderings that had no place, and were not left yet
}

func (b *blocking) unblock() {
	b.on.Store(false)
	close(b.blocked)
}

// noPlace is the error of a rendering that has no place.
type noPlace struct{ of *blocking }

func (noPlace) Error() string           { return "no place" }
func (e noPlace) Free() <-chan struct{} { return e.of.free }
func (e noPlace) Leave()                { e.of.waiting.Add(-1) }

func (b *blocking) Render(tenant string, fsys filesys.FileSystem, dir string, opts manifest.RenderOptions) ([]plan.Object, error) {
	if b.full.Load() {
		b.waiting.Add(1)
		return nil, noPlace{b}
	}
	if b.on.Load() {
		<-b.blocked
	}
	return b.Renderer.Render(tenant, fsys, dir, opts)
}

// A source that no controller syncs for three intervals is not Ready=True any more. The
// leader says so, and where no process leads, a standby. The next sync says how it is.
func TestFreshness(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	clock, held, judged, led := &aheadClock{}, &atomic.Bool{}, &atomic.Int64{}, &atomic.Int64{}
	fresh := freshness.Options{Ledger: types.NamespacedName{Namespace: s.ns, Name: "syncs"}, Every: 20 * time.Millisecond, Now: clock.Now}
	fresh.Election = func() (bool, bool) { led.Add(1); return true, true }
	render := &blocking{Renderer: renderers(), blocked: make(chan struct{}), free: make(chan struct{})}
	controller := func() (stop func()) {
		return s.startManager(s.c.Controller, func(mgr ctrl.Manager) error {
			return gitsync.Add(mgr, gitsync.Options{Renderer: render, StorageDir: s.TempDir(), Concurrent: 2, NoRemoteBases: true, FileRoots: []string{os.TempDir()}, Freshness: fresh})
		})
	}
	first := s.push(map[string]string{"deploy/a.yaml": configMap("a", "one")})
	stop := controller()
	t.Cleanup(func() { stop() })
	s.source() // its interval is an hour
	s.applied(first)
	clustertest.Wait(t, "the time of the sync on record", func() error {
		clock.pass(time.Second) // the record is written every 30 s
		if text := get(s, "syncs", &corev1.ConfigMap{}).Data["syncs"]; !strings.HasPrefix(text, s.ns+"/shop ") {
			return fmt.Errorf("%q", text)
		}
		return nil
	})
	s.writesLedgerAtMostEvery30s(clock, led)
	stop()

	standby := fresh
	standby.Election = func() (bool, bool) { judged.Add(1); return false, held.Load() }
	held.Store(true)
	t.Cleanup(s.startManager(s.c.Controller, func(mgr ctrl.Manager) error {
		_, err := freshness.Add(mgr, standby, nil)
		return err
	}))
	rounds := func() {
		t.Helper()
		threeRounds(t, judged)
	}
	clock.pass(4 * time.Hour)
	rounds()
	s.ready("shop", metav1.ConditionTrue, "Applied") // the leader renews its lease, and judges itself
	clock.pass(-2 * time.Hour)
	held.Store(false)
	rounds()
	s.ready("shop", metav1.ConditionTrue, "Applied") // two of three intervals have passed
	clock.pass(2 * time.Hour)
	if m := s.ready("shop", metav1.ConditionUnknown, "NotSynced"); !strings.Contains(m, "no controller has synced it since ") || !strings.Contains(m, "spec.interval is 1h0m0s") {
		t.Error(m)
	}
	s.says("Unknown NotSynced")
	clustertest.Wait(t, "the metric of its age", func() error {
		if age := s.syncAge(); age < 3*time.Hour || age > 5*time.Hour {
			return fmt.Errorf("it is %s", age)
		}
		return nil
	})
	version := s.gs().ResourceVersion
	rounds()
	if now := s.gs().ResourceVersion; now != version {
		t.Error("it is said twice")
	}

	held.Store(true)
	stop = controller()
	s.applied(first)

	// A leader that renews its lease, and whose syncs hang.
	render.on.Store(true)
	second := s.push(map[string]string{"deploy/a.yaml": configMap("a", "two")})
	clock.pass(4 * time.Hour)
	s.ready("shop", metav1.ConditionUnknown, "NotSynced")
	render.unblock()
	s.applied(second)
	waitForAPlace(s, clock, render)
	// A suspended source is not judged.
	s.suspend("shop")
	clock.pass(4 * time.Hour)
	held.Store(false)
	rounds()
	s.ready("shop", metav1.ConditionTrue, "Applied")
}

// waitForAPlace has a sync find no place to render until the source is said not to be synced,
// and why. The sync that has rendered leaves the place that this one waited for.
func waitForAPlace(s *env, clock *aheadClock, render *blocking) {
	s.Helper()
	render.full.Store(true)
	commit := s.push(map[string]string{"deploy/a.yaml": configMap("a", "three")})
	clustertest.Wait(s.T, "what it waits for", func() error {
		clock.pass(4 * time.Hour)
		if m := s.ready("shop", metav1.ConditionUnknown, "NotSynced"); !strings.Contains(m, "It has waited for a place to render since ") {
			return errors.New(m)
		}
		return nil
	})
	render.full.Store(false)
	render.free <- struct{}{}
	s.applied(commit)
	clustertest.Wait(s.T, "the place to be left to others", func() error {
		if n := render.waiting.Load(); n != 0 {
			return fmt.Errorf("%d still wait", n)
		}
		return nil
	})
}

// threeRounds waits until the sources were judged three times, as a counter of the rounds
// that have begun shows.
func threeRounds(t *testing.T, begun *atomic.Int64) {
	t.Helper()
	before := begun.Load()
	clustertest.Wait(t, "three rounds", func() error {
		if n := begun.Load() - before; n < 4 { // the last one may be under way
			return fmt.Errorf("%d", n)
		}
		return nil
	})
}

// writesLedgerAtMostEvery30s has the source synced again and again, so that each round has
// something else to write than the one before.
func (s *env) writesLedgerAtMostEvery30s(clock *aheadClock, rounds *atomic.Int64) {
	s.Helper()
	defer clock.stop()()
	var version string
	write := func() {
		s.Helper()
		clock.pass(30 * time.Second)
		threeRounds(s.T, rounds) // an earlier sync is on record
		clock.pass(30 * time.Second)
		want := s.ns + "/shop " + clock.Now().UTC().Format(time.RFC3339) + "\n"
		s.lookNow()
		clustertest.Wait(s, "the time of the sync on record", func() error {
			cm := get(s, "syncs", &corev1.ConfigMap{})
			version = cm.ResourceVersion
			if text := cm.Data["syncs"]; text != want {
				return fmt.Errorf("%q, want %q", text, want)
			}
			return nil
		})
	}
	write()
	for range 3 {
		clock.pass(9 * time.Second)
		s.lookNow()
		threeRounds(s.T, rounds)
		if now := get(s, "syncs", &corev1.ConfigMap{}); now.ResourceVersion != version {
			s.Fatalf("it was written again within 30 s: %q", now.Data["syncs"])
		}
	}
	write()
}

// syncAge is the age of the last sync of the source, as the metric has it.
func (s *env) syncAge() time.Duration {
	s.Helper()
	return time.Duration(gauge(s, "tranche_source_sync_age_seconds", "shop") * float64(time.Second))
}

// gauge is the value of a metric of a source; 0: there is none.
func gauge(s *env, name, source string) float64 {
	s.Helper()
	families, err := metrics.Registry.Gather()
	s.must(err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			has := map[string]string{}
			for _, l := range m.GetLabel() {
				has[l.GetName()] = l.GetValue()
			}
			if f.GetName() == name && has["namespace"] == s.ns && has["source"] == source {
				return m.GetGauge().GetValue()
			}
		}
	}
	return 0
}
