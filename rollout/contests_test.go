package rollout_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// Another manager pauses a native Deployment again after each revert. The first time is
// reverted at once, the later ones less and less often, and the status names the manager.
func TestDriftThatComesAgain(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	var mu sync.Mutex
	reverted := map[int64]time.Time{} // by the generation of the Deployment that the controller's write made
	startControllerIn(t, s.c, s.ns, func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			began := time.Now()
			response, err := next.RoundTrip(r)
			if err != nil || r.Method != http.MethodPatch || !strings.HasSuffix(r.URL.Path, "/deployments/web") || r.URL.Query().Has("dryRun") {
				return response, err
			}
			answer, err := io.ReadAll(response.Body)
			response.Body = io.NopCloser(bytes.NewReader(answer))
			var d appsv1.Deployment
			if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(answer, nil, &d); err == nil && d.Generation > 0 {
				mu.Lock()
				if _, known := reverted[d.Generation]; !known {
					reverted[d.Generation] = began
				}
				mu.Unlock()
			}
			return response, err
		})
	})
	s.install(2)
	s.plan("1", "100%")
	s.edit(func(spec *v1alpha1.BatchReleaseSpec) {
		spec.DeploymentStrategy = &appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType}
	})
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	pause := func() {
		s.kubectl("-n", s.ns, "patch", "deployment/web", "--field-manager=other", "-p", `{"spec":{"paused":true}}`)
	}
	const reverts = 4
	generation := s.deployment("web").Generation
	for n := range reverts {
		pause()
		clustertest.Wait(t, fmt.Sprintf("revert %d", n), func() error {
			if s.deployment("web").Spec.Paused {
				return fmt.Errorf("it is paused")
			}
			return nil
		})
	}
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	if got := s.deployment("web").Generation - generation; got != 2*reverts {
		t.Fatalf("%d pauses and their reverts changed the spec %d times", reverts, got)
	}
	mu.Lock()
	for n := int64(1); n < reverts; n++ {
		last, now := reverted[generation+2*n], reverted[generation+2*n+2]
		if stayed := now.Sub(last); last.IsZero() || stayed < time.Second<<(n-1)-100*time.Millisecond {
			t.Errorf("revert %d came %s after the one before: %v", n, stayed, reverted)
		}
	}
	mu.Unlock()
	clustertest.Wait(t, "the status to name the manager", func() error {
		if !s.deployment("web").Spec.Paused {
			pause() // for 8 s, and for twice as long each time
		}
		br := s.release()
		if br.Status.Reason != v1alpha1.ReasonDriftCorrected || meta.IsStatusConditionTrue(br.Status.Conditions, v1alpha1.ConditionReady) ||
			!strings.Contains(br.Status.Message, "spec.paused was changed by other, again after each revert") {
			return fmt.Errorf("%s: %s", br.Status.Reason, br.Status.Message)
		}
		return nil
	})
}
