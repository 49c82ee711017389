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
	server := clock.NewServer(time.Now)
	o := rollout.Options{
		Concurrent: 50, Analysis: analysis.Options{MayReach: func(netip.Addr) error { return nil }},
		Now: func() time.Time { return time.Now().Add(ahead) }, ServerNow: server.Now,
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

// The time at which a pod got its node is moved to the clock of the controller.
func TestFind_ClockOfAnotherMachine(t *testing.T) {
	t.Parallel()
	s, _ := newEnvWithController(t)
	s.install(2)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.bring("broken")
	var placed time.Time
	clustertest.Wait(t, "a pod with a node", func() error {
		for _, p := range s.pods("broken") {
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
					placed = c.LastTransitionTime.Time
					return nil
				}
			}
		}
		return fmt.Errorf("there is none of %d", len(s.pods("broken")))
	})
	observed := &engine.Observed{Release: s.release(), Deployment: s.deployment("web")}
	for _, rs := range s.sets() {
		observed.ReplicaSets = append(observed.ReplicaSets, &rs)
	}
	for _, ahead := range skews {
		finder := podcauses.New(s.c.Client, func() time.Time { return time.Now().Add(ahead) }, time.Now)
		found, err := finder.Find(t.Context(), observed)
		if err != nil {
			t.Fatal(err)
		}
		if off := found.PlacedTime.Sub(placed.Add(ahead)); found.Failing != 1 || off.Abs() > time.Second {
			t.Errorf("%s ahead: %d failing, since %s, want %s later than %s", ahead, found.Failing, found.PlacedTime, ahead, placed)
		}
	}
}

// A Job ends in time by the clock of the API server, which says when it was created.
func TestJob_ClockOfAnotherMachine(t *testing.T) {
	t.Parallel()
	for _, ahead := range skews {
		t.Run(ahead.String(), func(t *testing.T) {
			t.Parallel()
			s := &measuredEnv{newEnv(t)}
			var looks atomic.Int32 // at the Job
			startSkewed(s.env, ahead, func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(r *http.Request) (*http.Response, error) {
					if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/jobs/") {
						looks.Add(1)
					}
					return next.RoundTrip(r)
				})
			})
			s.cronJob("smoke")
			s.install(2)
			s.plan("1", "100%")
			s.analysed(v1alpha1.Metric{Name: "smoke", Job: &v1alpha1.JobMetric{From: "smoke", Timeout: seconds(600)}})
			s.bring("v2")
			pod := s.podOf(client.HasLabels{batchv1.JobNameLabel})
			clustertest.Wait(s, "looks at the Job while it runs", func() error {
				if n := looks.Load(); n < 3 { // before it is made, and twice
					return fmt.Errorf("%d looks", n)
				}
				return nil
			})
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
