package rollout_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// A controller runs under an account that the policies do not know. It could take a hold and
// never hand back (docs/install.md). It writes neither the Deployment nor a ReplicaSet. The
// policy refuses it the status, too: an event and the log say why.
func TestControllerUnderAnotherAccount(t *testing.T) {
	t.Parallel()
	s, stop := newEnvWithController(t)
	s.c.Guard(t, s.ns)
	s.install(2)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v1": 2})
	stop()
	s.bring("v2")
	before := s.release().Status

	another := *s.c
	another.Controller = rest.CopyConfig(s.c.Config)
	another.Controller.Impersonate = rest.ImpersonationConfig{UserName: "another", Groups: []string{"system:masters"}}
	var mu sync.Mutex
	var log strings.Builder
	logger := funcr.New(func(_, args string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(&log, args)
	}, funcr.Options{})
	var writes []string
	startManager(t, &another, s.ns, func(o *ctrl.Options) { o.Logger = logger }, func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/apis/apps/v1/") && !r.URL.Query().Has("dryRun") {
				mu.Lock()
				defer mu.Unlock()
				writes = append(writes, r.Method+" "+r.URL.Path)
			}
			return next.RoundTrip(r)
		})
	})
	const why, todo = "is the memory of the controller", "run the controller as that account"
	s.hasEvent(v1alpha1.ReasonWriteRefused, why)
	s.hasEvent(v1alpha1.ReasonWriteRefused, todo)
	clustertest.Wait(t, "the log", func() error {
		mu.Lock()
		defer mu.Unlock()
		got := log.String()
		for _, text := range []string{"Status not written", why, todo} {
			if !strings.Contains(got, text) {
				return fmt.Errorf("%q is not in %s", text, got)
			}
		}
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	if len(writes) > 0 {
		t.Errorf("it wrote %v", writes)
	}
	if at := s.release().Status; at.Reason != before.Reason || at.UpdateRevision != before.UpdateRevision {
		t.Errorf("the status has changed: %s", at.Reason)
	}
	s.untouched()
}
