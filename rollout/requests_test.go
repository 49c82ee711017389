package rollout_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// requests are those of a controller, without lists, watches, dry runs, events and
// reviews, which write nothing.
type requests struct {
	mu   sync.Mutex
	made []string
}

// count is a wrapper of a transport.
func (q *requests) count(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		answer, err := next.RoundTrip(r)
		if query := r.URL.Query(); query.Has("watch") || query.Has("limit") || query.Has("dryRun") || strings.Contains(r.URL.Path, "/events") || strings.HasSuffix(r.URL.Path, "reviews") {
			return answer, err
		}
		line := r.Method + " " + r.URL.Path
		if err == nil {
			line += fmt.Sprintf(" %d", answer.StatusCode)
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		q.made = append(q.made, line)
		return answer, err
	})
}

func (q *requests) forget() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.made = nil
}

// of counts those of a method whose line contains a text.
func (q *requests) of(method, text string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for _, line := range q.made {
		if strings.HasPrefix(line, method) && strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func (q *requests) conflicts() int { return q.of("", " 409") }

func (q *requests) String() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return strings.Join(q.made, "\n")
}

// An idle release costs no request, whatever goes on beside it.
func TestIdle(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	var calls requests
	startControllerIn(t, s.c, s.ns, calls.count)
	s.install(2)
	s.create("idle", 2)
	s.plan("1", "100%")
	idle := &v1alpha1.BatchRelease{}
	idle.Name, idle.Namespace = "idle", s.ns
	idle.Spec = v1alpha1.BatchReleaseSpec{WorkloadRef: v1alpha1.WorkloadReference{Name: "idle"}, Template: ptr.To(template("idle", "v1")), Strategy: s.release().Spec.Strategy}
	s.must(s.c.Client.Create(t.Context(), idle))
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.completed("idle")
	clustertest.Wait(s, "the idle release's counts", func() error { // a status that only counts comes later
		var br v1alpha1.BatchRelease
		s.must(s.c.Client.Get(t.Context(), client.ObjectKeyFromObject(idle), &br))
		if br.Status.UpdatedAvailableReplicas != 2 || br.Status.UpdatedReadyReplicas != 2 {
			return fmt.Errorf("%+v", br.Status)
		}
		return nil
	})
	calls.forget()
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1}) // two of the idle one
	s.approve(0)
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v1": 2, "v2": 2})
	if n := calls.of("", "/idle"); n > 0 {
		t.Errorf("%d requests about an idle release:\n%s", n, calls.String())
	}
}
