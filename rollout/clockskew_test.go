package rollout_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout"
	"github.com/tranche-dev/tranche/rollout/analysis"
	"github.com/tranche-dev/tranche/rollout/clock"
	"github.com/tranche-dev/tranche/rollout/clustertest"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/podcauses"
)

// skews are how far the clock of a controller may be ahead of the cluster's.
var skews = []time.Duration{-10 * time.Minute, time.Hour}

// startSkewed runs a controller on a machine whose clock is ahead of the API server's.
func startSkewed(s *env, ahead time.Duration, wrap ...transport.WrapperFunc) {
	s.Helper()
	began := time.Now()
	server := clock.NewServer(time.Now, func() time.Duration { return time.Since(began) })
	o := rollout.Options{
		Concurrent: 50, Analysis: analysis.Options{MayReach: func(netip.Addr) error { return nil }},
		Now: func() time.Time { return time.Now().Add(ahead) }, Since: server.Since,
	}
	startReconciler(s.T, s.c, s.ns, o, func(*ctrl.Options) {}, append(wrap, server.Wrap)...)
}

// A step misses its deadline by the clock of the controller, whatever that is in the cluster.
func TestDeadline_ClockOfAnotherMachine(t *testing.T) {
	t.Parallel()
	for _, ahead := range skews {
		t.Run(ahead.String(), func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			startSkewed(s, ahead)
			s.install(4)
			s.plan("1", "100%")
			s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
			s.deadline(5)
			s.bring("broken")
			s.waitFor(v1alpha1.ReasonRolledBack, 1, map[string]int32{"v1": 4})
		})
	}
}

// placed returns when a pod of a tag got its node, and waits until one has.
func placed(s *env, tag string) (at time.Time) {
	s.Helper()
	clustertest.Wait(s, "a pod with a node", func() error {
		for _, p := range s.pods(tag) {
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
					at = c.LastTransitionTime.Time
					return nil
				}
			}
		}
		return fmt.Errorf("there is none of %d", len(s.pods(tag)))
	})
	return at
}

// withFailingPod returns a release with a pod that fails, and since when that has its node.
func withFailingPod(t *testing.T) (s *env, observed *engine.Observed, since time.Time) {
	t.Helper()
	s, _ = newEnvWithController(t)
	s.install(2)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.bring("broken")
	since = placed(s, "broken")
	observed = &engine.Observed{Release: s.release(), Deployment: s.deployment("web")}
	for _, rs := range s.sets() {
		observed.ReplicaSets = append(observed.ReplicaSets, &rs)
	}
	return s, observed, since
}

// The time at which a pod got its node is moved to the clock of the controller.
func TestFind_ClockOfAnotherMachine(t *testing.T) {
	t.Parallel()
	s, observed, since := withFailingPod(t)
	for _, ahead := range skews {
		finder := podcauses.New(s.c.Client, func() time.Time { return time.Now().Add(ahead) }, time.Since)
		found, err := finder.Find(t.Context(), observed)
		if err != nil {
			t.Fatal(err)
		}
		if off := found.PlacedTime.Sub(since.Add(ahead)); found.Failing != 1 || off.Abs() > time.Second {
			t.Errorf("%s ahead: %d failing, since %s, want %s later than %s", ahead, found.Failing, found.PlacedTime, ahead, since)
		}
	}
}

// lookCount counts how often a controller looks at a Job.
type lookCount struct{ atomic.Int32 }

func (n *lookCount) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/jobs/") {
			n.Add(1)
		}
		return resp, err
	})
}

func (n *lookCount) await(s *env, want int32) {
	s.Helper()
	clustertest.Wait(s, "looks at the Job while it runs", func() error {
		if got := n.Load(); got < want {
			return fmt.Errorf("%d looks of %d", got, want)
		}
		return nil
	})
}

// A Job ends in time, although the clock of the API server says when it was created.
func TestJob_ClockOfAnotherMachine(t *testing.T) {
	t.Parallel()
	for _, ahead := range skews {
		t.Run(ahead.String(), func(t *testing.T) {
			t.Parallel()
			s := &measuredEnv{newEnv(t)}
			var looks lookCount
			startSkewed(s.env, ahead, looks.wrap)
			s.cronJob("smoke")
			s.install(2)
			s.plan("1", "100%")
			s.analysed(v1alpha1.Metric{Name: "smoke", Job: &v1alpha1.JobMetric{From: "smoke", Timeout: seconds(600)}})
			s.bring("v2")
			pod := s.podOf(client.HasLabels{batchv1.JobNameLabel})
			looks.await(s.env, 3) // before it is made, and twice
			s.exit(pod, 0)
			s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v2": 2})
			var jobs batchv1.JobList
			s.must(s.c.Client.List(t.Context(), &jobs, client.InNamespace(s.ns)))
			if len(jobs.Items) != 1 {
				t.Errorf("%d Jobs were made for one measurement", len(jobs.Items))
			}
		})
	}
}

// serverClock lets a controller see that the clock of the API server jumps.
type serverClock struct{ ahead atomic.Int64 }

func (c *serverClock) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		if err == nil {
			resp.Header.Set("Date", time.Now().Add(time.Duration(c.ahead.Load())).UTC().Format(http.TimeFormat))
		}
		return resp, err
	})
}

func (c *serverClock) jump(by time.Duration) { c.ahead.Store(int64(by)) }

// The clock of the API server jumps while the pods of a step fail. The step misses its deadline as
// without that.
func TestDeadline_ServerClockJumps(t *testing.T) {
	t.Parallel()
	for _, by := range skews {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			s, server := newEnv(t), &serverClock{}
			startSkewed(s, 0, server.wrap)
			s.install(4)
			s.plan("1", "100%")
			s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
			s.deadline(10)
			s.bring("broken")
			s.become(map[string]int32{"v1": 3, "broken": 1})
			placed(s, "broken")
			server.jump(by)
			s.waitFor(v1alpha1.ReasonRolledBack, 1, map[string]int32{"v1": 4})
		})
	}
}

// The clock of the API server jumps ahead after a pod got its node late. The deadline begins
// again, as without that.
func TestFind_ServerClockJumps(t *testing.T) {
	t.Parallel()
	s, observed, since := withFailingPod(t)
	for _, by := range skews {
		server, began := &serverClock{}, since.Add(-time.Hour)
		dates := clock.NewServer(time.Now, func() time.Duration { return time.Since(began) })
		own := rest.CopyConfig(s.c.Controller)
		own.Wrap(server.wrap)
		own.Wrap(dates.Wrap)
		c, err := client.New(own, client.Options{})
		s.must(err)
		look := func() *engine.Pods {
			t.Helper()
			pods, err := podcauses.New(c, time.Now, dates.Since).Find(t.Context(), observed)
			s.must(err)
			return pods
		}
		look()
		server.jump(by)
		if found := look(); found.Failing != 1 || found.PlacedTime.Sub(since).Abs() > 2*time.Second {
			t.Errorf("after a jump of %s: %d failing, since %s, want %s", by, found.Failing, found.PlacedTime, since)
		}
	}
}

// The clock of the API server jumps ahead while a Job runs. The Job has not run for so long.
func TestJob_ServerClockJumps(t *testing.T) {
	t.Parallel()
	s, server := &measuredEnv{newEnv(t)}, &serverClock{}
	var looks lookCount
	startSkewed(s.env, 0, server.wrap, looks.wrap)
	s.cronJob("smoke")
	s.install(2)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.analysed(v1alpha1.Metric{Name: "smoke", Job: &v1alpha1.JobMetric{From: "smoke", Timeout: seconds(600)}})
	s.edit(func(spec *v1alpha1.BatchReleaseSpec) {
		spec.Strategy.OnFailure, spec.Strategy.Analysis.OnUnknown = v1alpha1.FailureRollback, v1alpha1.UnknownPass
	})
	s.bring("v2")
	pod := s.podOf(client.HasLabels{batchv1.JobNameLabel})
	server.jump(time.Hour)
	looks.await(s.env, looks.Load()+2)
	s.exit(pod, 1)
	s.waitFor(v1alpha1.ReasonRolledBack, 1, map[string]int32{"v1": 2})
}
