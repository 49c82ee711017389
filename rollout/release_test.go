package rollout_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// The most that a release of 10 pods in 3 steps may write, where each pod is ready at
// another time. As pods become ready together, there is less to write.
const (
	deploymentWrites = 2
	replicaSetWrites = 2*10 + 2 // a pod more or less, what is made, and what is complete
	statusWrites     = 12 + 10
	// otherWrites make and change the ControllerRevision.
	otherWrites = 2
)

func TestRelease(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	var calls requests
	startControllerIn(t, s.c, s.ns, calls.count)
	s.install(10)
	s.plan("20%", "50%", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 2, map[string]int32{"v1": 10})
	calls.forget()

	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 8, "v2": 2})
	if d := s.deployment("web"); !d.Spec.Paused || d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		t.Errorf("the native controller is not held: paused=%t, strategy %s", d.Spec.Paused, d.Spec.Strategy.Type)
	}
	s.approve(0)
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 1, map[string]int32{"v1": 5, "v2": 5})
	s.approve(1)
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 2, map[string]int32{"v2": 10})
	s.untouched()

	reads := calls.of(http.MethodGet, "/batchreleases/web")
	deployments, sets, statuses := s.w.Writes("Deployment", v1alpha1.ManagerRollout), s.w.Writes("ReplicaSet", v1alpha1.ManagerRollout), calls.of(http.MethodPut, "/status")
	t.Logf("writes: %d to the Deployment, %d to ReplicaSets, %d of the status; %d reads of the BatchRelease; %d conflicts, %d fights", deployments, sets, statuses, reads, calls.conflicts(), s.w.Fights())
	// The reads are past the cache: one for each round that writes something else than the status.
	most := deployments + sets + otherWrites + calls.conflicts()
	if deployments > deploymentWrites || sets > replicaSetWrites || statuses > statusWrites || reads > most {
		t.Errorf("more writes than %d, %d and %d, or reads than %d\n%s\n%s", deploymentWrites, replicaSetWrites, statusWrites, most, calls.String(), s.w.Timeline())
	}
	if h := s.release().Status.History; len(h) != 1 || h[0].Outcome != v1alpha1.OutcomeCompleted || len(h[0].Approvals) != 2 || h[0].Approvals[0].By != "Ada <ada@example.org>" {
		t.Errorf("history %+v", h)
	}
}

// A Deployment released by Tranche and its twin rolled natively end with the
// same revision, ReplicaSets, and annotations; and the next native change rolls.
func TestReleaseEqualsNative(t *testing.T) {
	t.Parallel()
	s, _ := newEnvWithController(t)
	s.install(4)
	s.create("twin", 4)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, nil)
	s.approve(0)
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.kubectl("-n", s.ns, "set", "image", "deployment/twin", "twin=registry.example.org/web:v2")
	s.rolled("twin", 4)

	s.nativeHasSeen("web")
	if got, want := s.newest("web"), s.newest("twin"); got.annotations != want.annotations {
		t.Errorf("annotations %s, native %s", got.annotations, want.annotations)
	}
	// The same template under the same labels has the same hash: a twin of the
	// very same manifest, in a namespace of its own, tells.
	other := newEnv(t)
	other.install(4)
	s.kubectl("-n", other.ns, "set", "image", "deployment/web", "web=registry.example.org/web:v2")
	other.rolled("web", 4)
	if got, want := s.newest("web").name, other.newest("web").name; got != want {
		t.Errorf("ReplicaSet %s, native %s", got, want)
	}

	s.must(s.c.Client.Delete(t.Context(), s.release()))
	s.kubectl("-n", s.ns, "set", "image", "deployment/web", "web=registry.example.org/web:v3")
	s.rolled("web", 4)
	if got := s.sizes(); got["v3"] != 4 {
		t.Errorf("sizes %v", got)
	}
}

// rolled waits until a Deployment has rolled natively.
func (s *env) rolled(name string, n int32) {
	s.Helper()
	clustertest.Wait(s, "the native rollout of "+name, func() error {
		d := s.deployment(name)
		if d.Status.ObservedGeneration != d.Generation || d.Status.UpdatedReplicas != n || d.Status.AvailableReplicas != n || d.Status.Replicas != n {
			return fmt.Errorf("%+v", d.Status)
		}
		return nil
	})
}

type summary struct{ name, annotations string }

// newest returns the ReplicaSet of a Deployment that has pods.
func (s *env) newest(deployment string) summary {
	s.Helper()
	for _, rs := range s.sets() {
		if metav1.GetControllerOf(&rs).Name == deployment && *rs.Spec.Replicas > 0 {
			return summary{rs.Name, fmt.Sprint(rs.Annotations)}
		}
	}
	s.Fatalf("Deployment %s has no ReplicaSet with pods", deployment)
	return summary{}
}

func TestSupersede(t *testing.T) {
	t.Parallel()
	s, _ := newEnvWithController(t)
	s.install(10)
	s.plan("20%", "50%", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 2, nil)
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 8, "v2": 2})
	s.approve(0)
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 1, map[string]int32{"v1": 5, "v2": 5})
	s.bring("v3")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 8, "v3": 2})
	s.approve(1)
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 2, map[string]int32{"v3": 10})
	s.untouched()
	var outcomes []string
	for _, r := range s.release().Status.History {
		outcomes = append(outcomes, string(r.Outcome))
	}
	if got := strings.Join(outcomes, " "); got != "Completed Superseded" {
		t.Errorf("history %s", got)
	}
}

func TestRollback(t *testing.T) {
	t.Parallel()
	s, _ := newEnvWithController(t)
	s.install(10)
	s.plan("20%", "50%", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 2, nil)

	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 8, "v2": 2})
	s.bring("v1") // on the way
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 2, map[string]int32{"v1": 10})
	s.untouched()

	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 8, "v2": 2})
	s.approve(1)
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 2, map[string]int32{"v2": 10})
	s.bring("v1") // afterwards
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 2, map[string]int32{"v1": 10})
	s.untouched()

	s.bring("v2") // again: it is no way back, and has to be approved again
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 8, "v2": 2})
}

// A plan that comes back after others have changed the Deployment: what runs
// is stable, and not what ran when the last plan went.
func TestPlanComesBack(t *testing.T) {
	t.Parallel()
	s, _ := newEnvWithController(t)
	s.install(4)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
	s.must(s.c.Client.Delete(t.Context(), s.release()))
	s.rolled("web", 4)
	s.plan("1", "100%")
	s.bring("v3")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v2": 3, "v3": 1})
}

// A write that is refused is said where people look, and goes on when it passes.
func TestWriteRefused(t *testing.T) {
	t.Parallel()
	s, _ := newEnvWithController(t)
	s.install(2)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.kubectl("-n", s.ns, "create", "quota", "no-more", "--hard=count/replicasets.apps=1")
	clustertest.Wait(t, "the quota to count", func() error {
		out, err := s.c.Kubectl(t, "-n", s.ns, "get", "quota", "no-more", "-o", "jsonpath={.status.used}")
		if err == nil && !strings.Contains(out, `"1"`) {
			err = fmt.Errorf("used %s", out)
		}
		return err
	})
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWriteRefused, 0, map[string]int32{"v1": 2})
	if m := s.release().Status.Message; !strings.Contains(m, "exceeded quota: no-more") {
		t.Errorf("message %q", m)
	}
	s.kubectl("-n", s.ns, "delete", "quota", "no-more")
	s.edit(func(spec *v1alpha1.BatchReleaseSpec) { spec.Strategy.ProgressDeadlineSeconds = ptr.To(int32(500)) }) // it looks again
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 1, "v2": 1})
}

// If a Deployment has two plans, the older counts; when it goes, the other does.
func TestTwoPlans(t *testing.T) {
	t.Parallel()
	s, _ := newEnvWithController(t)
	s.install(2)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	first := s.release()
	second := first.DeepCopy()
	second.ObjectMeta = metav1.ObjectMeta{Name: "zweb", Namespace: s.ns}
	second.Status = v1alpha1.BatchReleaseStatus{}
	s.must(s.c.Client.Create(t.Context(), second))
	reason := func(want string) {
		t.Helper()
		clustertest.Wait(t, want, func() error {
			var br v1alpha1.BatchRelease
			s.must(s.c.Client.Get(t.Context(), client.ObjectKeyFromObject(second), &br))
			if br.Status.Reason != want {
				return fmt.Errorf("%s: %s", br.Status.Reason, br.Status.Message)
			}
			return nil
		})
	}
	reason(v1alpha1.ReasonAnotherPlan)
	s.must(s.c.Client.Delete(t.Context(), first))
	reason(v1alpha1.ReasonReleaseCompleted)
}

// A step that misses its deadline goes back, and is not tried again.
func TestDeadlineRollsBack(t *testing.T) {
	t.Parallel()
	s, _ := newEnvWithController(t)
	s.install(5)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.edit(func(spec *v1alpha1.BatchReleaseSpec) {
		spec.Strategy.ProgressDeadlineSeconds, spec.Strategy.OnFailure = ptr.To(int32(3)), v1alpha1.FailureRollback
	})
	s.bring("broken")
	s.waitFor(v1alpha1.ReasonRolledBack, 1, map[string]int32{"v1": 5})
	s.untouched()
	if f := s.release().Status.FailedRevision; f == "" {
		t.Error("the failed revision is not remembered")
	}
	s.edit(func(spec *v1alpha1.BatchReleaseSpec) { spec.Strategy.ProgressDeadlineSeconds = ptr.To(int32(600)) })
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 4, "v2": 1})
}

// An approval and a rollback given in the cluster.
func TestIntents(t *testing.T) {
	t.Parallel()
	s, _ := newEnvWithController(t)
	s.install(4)
	s.plan("1", "50%", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 2, nil)
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, nil)
	s.kubectl("-n", s.ns, "patch", "batchrelease", "web", "--subresource=status", "--type=merge", "-p", `{"status":{"currentStepState":"Completed"}}`)
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 1, map[string]int32{"v1": 2, "v2": 2})
	s.kubectl("-n", s.ns, "annotate", "batchrelease", "web", "tranche.dev/rollback=true")
	s.waitFor(v1alpha1.ReasonRolledBack, 2, map[string]int32{"v1": 4})
	if _, ok := s.release().Annotations[v1alpha1.AnnotationRollback]; ok {
		t.Error("the annotation is still there")
	}
	s.untouched()
}

// H4, H5, H24: the split follows the replicas, to zero and back, and the gate stays.
func TestScale(t *testing.T) {
	t.Parallel()
	s, _ := newEnvWithController(t)
	s.install(10)
	s.plan("20%", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 8, "v2": 2})
	for _, step := range []struct {
		n      int32
		reason string
		sizes  map[string]int32
	}{
		{20, v1alpha1.ReasonWaitingForApproval, map[string]int32{"v1": 16, "v2": 4}},
		{5, v1alpha1.ReasonWaitingForApproval, map[string]int32{"v1": 4, "v2": 1}},
		{0, v1alpha1.ReasonScaledToZero, map[string]int32{}},
		{10, v1alpha1.ReasonWaitingForApproval, map[string]int32{"v1": 8, "v2": 2}},
	} {
		s.kubectl("-n", s.ns, "scale", "deployment/web", fmt.Sprintf("--replicas=%d", step.n))
		s.waitFor(step.reason, 0, step.sizes)
	}
	s.approve(0)
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v2": 10})
	s.untouched()
}

// A plan that is deleted on the way: hand-back, and the native controller
// finishes what the Deployment says.
func TestPlanDeleted(t *testing.T) {
	t.Parallel()
	s, _ := newEnvWithController(t)
	s.install(6)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 5, "v2": 1})
	s.must(s.c.Client.Delete(t.Context(), s.release()))
	s.rolled("web", 6)
	s.untouched()
	if got := s.sizes(); got["v2"] != 6 {
		t.Errorf("sizes %v", got)
	}
}

// Drift under a hold is put back.
func TestDriftUnderHold(t *testing.T) {
	t.Parallel()
	s, _ := newEnvWithController(t)
	s.install(4)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
	s.kubectl("-n", s.ns, "set", "image", "deployment/web", "web=registry.example.org/web:other")
	clustertest.Wait(t, "the hold to be put back", func() error {
		if d := s.deployment("web"); d.Spec.Template.Spec.Containers[0].Image != "registry.example.org/web:v2" {
			return fmt.Errorf("image %s", d.Spec.Template.Spec.Containers[0].Image)
		}
		return nil
	})
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
	s.hasEvent("DriftCorrected", "kubectl-set")
}

// A Deployment that is left alone keeps what others change, until it no longer is.
func TestDriftIsLeftAlone(t *testing.T) {
	t.Parallel()
	s, _ := newEnvWithController(t)
	s.install(4)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.kubectl("-n", s.ns, "annotate", "deployment/web", "tranche.dev/reconcile=disabled")
	s.waitFor(v1alpha1.ReasonReleasePaused, 1, nil)
	s.kubectl("-n", s.ns, "set", "image", "deployment/web", "web=registry.example.org/web:other")
	clustertest.Wait(t, "the other image everywhere", func() error {
		if d := s.deployment("web"); d.Status.UpdatedReplicas != 4 || d.Status.Replicas != 4 || d.Status.ObservedGeneration != d.Generation || d.Spec.Template.Spec.Containers[0].Image != "registry.example.org/web:other" {
			return fmt.Errorf("%+v", d.Status)
		}
		return nil
	})
	s.kubectl("-n", s.ns, "annotate", "deployment/web", "tranche.dev/reconcile-")
	clustertest.Wait(t, "the image of the plan", func() error {
		if d := s.deployment("web"); engine.Held(d) || d.Status.UpdatedReplicas != 4 || d.Spec.Template.Spec.Containers[0].Image != "registry.example.org/web:v1" {
			return fmt.Errorf("%+v", d.Spec)
		}
		return nil
	})
}

// I9: a plan that cannot be is refused by the API server, with the reason.
func TestBadPlans(t *testing.T) {
	c := clustertest.Shared(t)
	ns := c.Namespace(t)
	for name, tc := range map[string]struct{ steps, want string }{
		"no-last":   {`[{"replicas": 1}]`, "the last step must be 100%"},
		"leading-0": {`[{"replicas": "09%"}, {"replicas": "100%"}]`, "should match '^([1-9][0-9]?|100)%$'"},
		"string":    {`[{"replicas": "5"}, {"replicas": "100%"}]`, "should match '^([1-9][0-9]?|100)%$'"},
		"too-much":  {`[{"replicas": "150%"}, {"replicas": "100%"}]`, "should match '^([1-9][0-9]?|100)%$'"},
		"zero":      {`[{"replicas": 0}, {"replicas": "100%"}]`, "must be a number from 1"},
		"last-gate": {`[{"replicas": "100%", "pause": {"duration": "1s"}}]`, "the last step has no gate"},
		"none":      {`[]`, "should have at least 1 items"},
	} {
		t.Run(name, func(t *testing.T) {
			raw := fmt.Sprintf(`{"apiVersion":"tranche.dev/v1alpha1","kind":"BatchRelease","metadata":{"name":%q,"namespace":%q},"spec":{"workloadRef":{"name":"web"},"strategy":{"steps":%s}}}`, name, ns, tc.steps)
			br := &v1alpha1.BatchRelease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}}
			err := c.Client.Patch(t.Context(), br, client.RawPatch(types.ApplyPatchType, []byte(raw)), client.FieldOwner("test"), client.ForceOwnership)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("steps %s: %v, want %q", tc.steps, err, tc.want)
			}
		})
	}
}

// spec.commit is hexadecimal digits alone, since notifications are sent about it.
func TestBadCommits(t *testing.T) {
	c := clustertest.Shared(t)
	ns := c.Namespace(t)
	for name, tc := range map[string]struct {
		commit string
		valid  bool
	}{
		"none":        {"", true},
		"abbreviated": {"0123456", true},
		"sha-1":       {commitOf("v1"), true},
		"sha-256":     {strings.Repeat("0a", 32), true},
		"path":        {"../../../../admin/users?x=", false},
		"repository":  {"../../../o/r/statuses/" + commitOf("v1"), false},
		"short":       {"012345", false},
		"long":        {strings.Repeat("0a", 32) + "0", false},
		"upper-case":  {strings.Repeat("A", 40), false},
		"line-feed":   {commitOf("v1") + "\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			raw := fmt.Sprintf(`{"apiVersion":"tranche.dev/v1alpha1","kind":"BatchRelease","metadata":{"name":%q,"namespace":%q},"spec":{"workloadRef":{"name":"web"},"commit":%q,"strategy":{"steps":[{"replicas":"100%%"}]}}}`, name, ns, tc.commit)
			br := &v1alpha1.BatchRelease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}}
			err := c.Client.Patch(t.Context(), br, client.RawPatch(types.ApplyPatchType, []byte(raw)), client.FieldOwner("test"), client.ForceOwnership)
			if refused := apierrors.IsInvalid(err) && strings.Contains(err.Error(), "spec.commit"); tc.valid && err != nil || !tc.valid && !refused {
				t.Errorf("commit %q: %v, want valid %t", tc.commit, err, tc.valid)
			}
		})
	}
}

// The API server answers with errors for longer than the deadline of a step. The time
// does not count, and the release goes on by itself once it is well again.
func TestErrorsBeyondTheDeadline(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	var broken atomic.Bool
	var refused atomic.Int32
	clock := &jumpingClock{}
	startReconciler(t, s.c, s.ns, clock.options(), func(*ctrl.Options) {}, func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if broken.Load() && r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/replicasets/") {
				refused.Add(1)
				return nil, errors.New("connection refused")
			}
			return next.RoundTrip(r)
		})
	})
	s.install(6)
	s.plan("1", "100%")
	s.edit(func(spec *v1alpha1.BatchReleaseSpec) {
		spec.Strategy.ProgressDeadlineSeconds, spec.Strategy.OnFailure = ptr.To(int32(600)), v1alpha1.FailureRollback
	})
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 5, "v2": 1})
	broken.Store(true)
	s.approve(0)
	clustertest.Wait(t, "a request that fails", func() error {
		if refused.Load() == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	for range 8 { // sixteen minutes, and the deadline is ten
		clock.pass(2 * time.Minute)
		s.rounds(clock)
	}
	if n := refused.Load(); n < 8 {
		t.Errorf("%d requests have failed", n)
	}
	broken.Store(false)
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v2": 6})
}
