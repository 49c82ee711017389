package rollout_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// races sends each hand-back of Deployment web twice, as two rounds at the same time do.
type races struct {
	lost, refused atomic.Int32
	refuse        atomic.Bool
}

func (a *races) over(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) { return a.send(next, r) })
}

func (a *races) send(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPatch || !strings.HasSuffix(r.URL.Path, "/deployments/web") || r.URL.Query().Has("dryRun") {
		return next.RoundTrip(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if !bytes.Contains(body, []byte(`"remove"`)) { // it takes the hold
		return next.RoundTrip(r)
	}
	if a.refuse.Load() {
		a.refused.Add(1)
		return clustertest.Refusal(r, http.StatusUnprocessableEntity, "Invalid"), nil
	}
	first := r.Clone(r.Context())
	first.Body = io.NopCloser(bytes.NewReader(body))
	winner, err := next.RoundTrip(first)
	if err != nil {
		return nil, err
	}
	if err := winner.Body.Close(); err != nil {
		return nil, err
	}
	loser, err := next.RoundTrip(r)
	if err == nil && loser.StatusCode == http.StatusUnprocessableEntity {
		a.lost.Add(1)
	}
	return loser, err
}

// Several rounds hand back the Deployments of a namespace at the same time: each plan that goes
// has one. The round that loses the race sends a patch that does not fit any more. That is no
// refusal by a policy: no event and no line of the log has one. An event has a refusal.
func TestHandBack_LostRace(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	var logged lines
	var sent races
	startReconciler(t, s.c, s.ns, rollout.Options{Concurrent: 1}, logged.log, sent.over)
	s.install(2)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 1, "v2": 1})
	s.unplan()
	s.rolled("web", 2)
	s.untouched()
	var events corev1.EventList
	s.must(s.c.Client.List(t.Context(), &events))
	for _, e := range events.Items {
		if e.Namespace == s.ns && e.Type == corev1.EventTypeWarning {
			t.Errorf("%s of %s: %s", e.Reason, e.InvolvedObject.Kind, e.Message)
		}
	}
	if found := logged.with("Reconciler error"); len(found) > 0 {
		t.Errorf("the log: %s", found)
	}

	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v2": 1, "v1": 1})
	sent.refuse.Store(true)
	s.unplan()
	s.warned(v1alpha1.ReasonHandBackRefused, "made by a test")
	sent.refuse.Store(false)
	s.rolled("web", 2)
	if sent.lost.Load() == 0 || sent.refused.Load() == 0 {
		t.Errorf("%d lost races, %d refusals", sent.lost.Load(), sent.refused.Load())
	}
}
