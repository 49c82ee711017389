package gitsync_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// The API server refuses the status of a source. The metrics have the source as not Ready,
// so that an alert fires: the status cannot.
func TestStatusRefused(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	var broken atomic.Bool
	config := rest.CopyConfig(s.c.Controller)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if broken.Load() && r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/gitsources/shop/status") {
				return clustertest.Refusal(r, http.StatusForbidden, metav1.StatusReasonForbidden), nil
			}
			return next.RoundTrip(r)
		})
	})
	t.Cleanup(s.startControllerWith(config, gitsyncOnly))
	notReady := func(want float64) {
		t.Helper()
		clustertest.Wait(t, fmt.Sprintf("the metric to be %v", want), func() error {
			if now := clustertest.Metric(t, "tranche_source_condition", s.ns, "shop", "Ready", "False"); now != want {
				return fmt.Errorf("it is %v", now)
			}
			return nil
		})
	}
	s.source()
	s.applied(s.push(map[string]string{"deploy/a.yaml": configMap("a", "one")}))
	notReady(0)
	broken.Store(true)
	tip := s.push(map[string]string{"deploy/a.yaml": configMap("a", "two")})
	notReady(1)
	broken.Store(false)
	s.applied(tip)
	notReady(0)
}
