package gitsync_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// envBetween starts rollout, and a gitsync with a function around its requests. The function
// that it returns ends rollout.
func envBetween(
	t *testing.T, between func(s *env, next http.RoundTripper, r *http.Request) (*http.Response, error),
) (s *env, stop func()) {
	t.Helper()
	s = newIdleEnv(t)
	config := rest.CopyConfig(s.c.Controller)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) { return between(s, next, r) })
	})
	stop = startRollout(s)
	t.Cleanup(stop)
	t.Cleanup(s.startControllerWith(config, gitsyncOnly))
	return s, stop
}

// The function startRollout starts a controller without gitsync.
func startRollout(s *env) (stop func()) {
	s.Helper()
	return s.startManager(s.c.Controller, func(mgr ctrl.Manager) error {
		return rollout.Add(mgr, rollout.Options{Concurrent: 2})
	})
}

// A BatchRelease that is being deleted is gone after gitsync has read it, and before gitsync
// reads what is there of the object. The one that gitsync then creates is another release. No
// sync is asked for.
func TestPlanBack_GoneAsItIsRead(t *testing.T) {
	t.Parallel()
	var armed, listed atomic.Bool
	s, _ := envBetween(t, func(s *env, next http.RoundTripper, r *http.Request) (*http.Response, error) {
		answer, err := next.RoundTrip(r)
		if err != nil || r.Method != http.MethodGet || !armed.Load() || r.URL.Query().Has("watch") {
			return answer, err
		}
		if strings.HasSuffix(r.URL.Path, "/batchreleases") {
			listed.Store(true)
		}
		if !strings.HasSuffix(r.URL.Path, "/batchreleases/web") || !listed.Load() {
			return answer, err
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close() // it is read to its end, or the error says that it is not
		answer.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.Contains(body, []byte(`"deletionTimestamp"`)) && armed.CompareAndSwap(true, false) {
			s.finalizers("")
		}
		return answer, err
	})
	s.beginRelease()
	held, thaw := keepPlan(s)
	thaw()
	before := s.release("web")
	armed.Store(true)
	s.approveNow()
	s.isGoneOrNew("web", before.UID)
	s.isAt("web", "WaitingForApproval", 0)
	s.says("False ApprovalIgnored: deploy/approvals/web.yaml: BatchApproval " + s.ns + "/web: spec.commit: " +
		before.Spec.Commit + " is another release; the present one comes from ")
	if now := s.release("web"); now.Spec.Commit == before.Spec.Commit {
		t.Errorf("it is made again with commit %s, of a release that has ended", now.Spec.Commit)
	}
	s.staysHeld(held)
	s.approveNow()
	s.isAt("web", "ReleaseCompleted", 1)
}

// A user deletes the BatchRelease of a release right before gitsync applies an approval to it.
// The one that gitsync then creates is another release, and its gate asks again.
func TestPlanDeleted_BeforeTheApply(t *testing.T) {
	t.Parallel()
	var armed atomic.Bool
	s, stop := envBetween(t, func(s *env, next http.RoundTripper, r *http.Request) (*http.Response, error) {
		writes := r.Method == http.MethodPatch && !r.URL.Query().Has("dryRun")
		if writes && strings.HasSuffix(r.URL.Path, "/batchreleases/web") && armed.CompareAndSwap(true, false) {
			s.kubectl("delete", "batchrelease/web")
		}
		return next.RoundTrip(r)
	})
	s.beginRelease()
	stop() // else it may hand the Deployment back before there is another one
	before := s.release("web")
	armed.Store(true)
	s.approveNow()
	clustertest.Wait(t, "the BatchRelease to be made again", func() error {
		if armed.Load() {
			return fmt.Errorf("nothing is applied: %s", said(s.gs()))
		}
		var now v1alpha1.BatchRelease
		err := s.c.Client.Get(t.Context(), client.ObjectKeyFromObject(before), &now)
		if err == nil && now.UID == before.UID {
			return errors.New("it is there")
		}
		return err
	})
	held := s.recordDeployments()
	t.Cleanup(startRollout(s))
	s.isAt("web", "WaitingForApproval", 0)
	if now := s.release("web"); now.Spec.Commit == before.Spec.Commit || now.Spec.Approval != nil {
		t.Errorf("it is of commit %s, with approval %v", now.Spec.Commit, now.Spec.Approval)
	}
	s.staysHeld(held)
	s.approveNow()
	s.isAt("web", "ReleaseCompleted", 1)
}
