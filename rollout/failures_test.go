package rollout_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// lines are those of a controller's log.
type lines struct {
	mu  sync.Mutex
	all []string
}

// log is an option of a manager.
func (l *lines) log(o *ctrl.Options) {
	o.Logger = funcr.New(func(prefix, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = append(l.all, prefix+" "+args)
	}, funcr.Options{})
}

// with returns the lines that contain all of these.
func (l *lines) with(parts ...string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
next:
	for _, line := range l.all {
		for _, p := range parts {
			if !strings.Contains(line, p) {
				continue next
			}
		}
		found = append(found, line)
	}
	return found
}

// The API server answers with 500. One line of the log says at once what fails, in
// which release, revision and step, and one event says so to users. Both are not
// repeated with each try, and a line says when requests pass again.
func TestRequestsFail(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	var logged lines
	var broken atomic.Bool
	var failed atomic.Int32
	startReconciler(t, s.c, s.ns, rollout.Options{Concurrent: 1}, logged.log, func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if broken.Load() && r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/replicasets/") {
				failed.Add(1)
				return clustertest.Refusal(r, http.StatusInternalServerError, metav1.StatusReasonInternalError), nil
			}
			return next.RoundTrip(r)
		})
	})
	s.install(4)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
	revision := s.release().Status.UpdateRevision
	broken.Store(true)
	s.approve(0)
	clustertest.Wait(t, "requests that fail", func() error {
		if n := failed.Load(); n < 4 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	if got := logged.with(`"Request failed"`, `"error"`, "made by a test", `"name"="web"`, `"namespace"="`+s.ns+`"`, `"revision"="`+revision+`"`, `"step"=1`); len(got) != 1 {
		t.Errorf("%d lines: %q; all: %s", len(got), got, strings.Join(logged.with("web"), "\n"))
	}
	clustertest.Wait(t, "the event", func() error {
		var events corev1.EventList
		s.must(s.c.Client.List(t.Context(), &events, client.InNamespace(s.ns)))
		for _, e := range events.Items {
			if e.Reason == v1alpha1.ReasonRequestFailed && e.Type == corev1.EventTypeWarning && e.InvolvedObject.Kind == "BatchRelease" && strings.Contains(e.Message, "made by a test") {
				return nil
			}
		}
		return errors.New("it is not there")
	})
	broken.Store(false)
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v2": 4})
	if n := len(logged.with(`"Request failed"`, `"namespace"="`+s.ns+`"`)); n != 1 {
		t.Errorf("%d lines of one outage", n)
	}
	if n := len(logged.with(`"Requests pass again"`, `"namespace"="`+s.ns+`"`)); n != 1 {
		t.Errorf("%d lines say that it is over", n)
	}
}

// The API server refuses the status of a release. The log says so, and the metrics have
// the release as Stalled, so that an alert fires: the status cannot.
func TestStatusRefused(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	var logged lines
	var broken atomic.Bool
	startReconciler(t, s.c, s.ns, rollout.Options{Concurrent: 1}, logged.log, func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if broken.Load() && r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/batchreleases/web/status") {
				return clustertest.Refusal(r, http.StatusForbidden, metav1.StatusReasonForbidden), nil
			}
			return next.RoundTrip(r)
		})
	})
	stalled := func(want float64) {
		t.Helper()
		clustertest.Wait(t, fmt.Sprintf("the metric to be %v", want), func() error {
			if now := clustertest.Metric(t, "tranche_release_condition", s.ns, "Stalled", "True"); now != want {
				return fmt.Errorf("it is %v", now)
			}
			return nil
		})
	}
	s.install(2)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	stalled(0)
	broken.Store(true)
	s.bring("v2")
	stalled(1)
	if got := logged.with(`"Status not written"`, "made by a test", `"name"="web"`, `"namespace"="`+s.ns+`"`); len(got) == 0 {
		t.Errorf("no line of the log says so: %s", strings.Join(logged.with("web"), "\n"))
	}
	broken.Store(false)
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 1, "v2": 1})
	stalled(0)
}
