package rollout_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// waits gives the container of every pod of a tag a state, as a kubelet does.
func (s *env) waits(tag string, state corev1.ContainerState, last corev1.ContainerState) {
	s.Helper()
	clustertest.Wait(s, "the pods of "+tag, func() error {
		pods := s.pods(tag)
		for i := range pods {
			if pods[i].Status.Phase != corev1.PodRunning { // the node would overwrite what is written now
				return errors.New("one has not begun")
			}
			pods[i].Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", Image: "web", State: state, LastTerminationState: last}}
			if err := s.c.Client.Status().Update(s.Context(), &pods[i]); err != nil {
				return err
			}
		}
		if len(pods) == 0 {
			return errors.New("there are none")
		}
		return nil
	})
}

// has waits until so many pods of a tag are there.
func (s *env) has(tag string, n int) {
	s.Helper()
	clustertest.Wait(s, fmt.Sprintf("%d pods of %s", n, tag), func() error {
		if got := len(s.pods(tag)); got != n {
			return fmt.Errorf("there are %d", got)
		}
		return nil
	})
}

// The message says long before the deadline why pods of a release do not come, and how
// many. It does not count the size of a ReplicaSet as running pods.
func TestMessage_WhyPodsDoNotCome(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		bring func(s *env)
		says  []string
	}{
		"quota": {
			func(s *env) { s.quota(3); s.bring("v2") },
			[]string{"0 of 4 pods run ", "2 wanted", ": 2 pods not created: exceeded quota: pods, requested: pods=1, used: pods="},
		},
		"no node": {
			func(s *env) { s.bringConfined("v2") },
			[]string{"0 of 4 pods run ", "2 wanted", ": 2 pods not scheduled: 0/", "node(s) didn't match"},
		},
		"no image": {
			func(s *env) {
				s.bring("broken")
				s.has("broken", 2)
				s.waits("broken", corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}, corev1.ContainerState{})
			},
			[]string{"0 of 4 pods run ", "2 pods not ready: ImagePullBackOff"},
		},
		"crashes": {
			func(s *env) {
				s.bring("broken")
				s.has("broken", 2)
				s.waits("broken", corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
					corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}})
			},
			[]string{"0 of 4 pods run ", "2 pods not ready: CrashLoopBackOff, last exit code 137, OOMKilled"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := newEnvWithController(t)
			s.install(4)
			s.plan("2", "100%")
			s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
			tc.bring(s)
			clustertest.Wait(s, "the message", func() error {
				at := s.release().Status
				for _, want := range tc.says {
					if at.Reason != v1alpha1.ReasonUpgrading || !strings.Contains(at.Message, want) {
						return fmt.Errorf("%s: %q has no %q", at.Reason, at.Message, want)
					}
				}
				return nil
			})
			if at, want := s.release().Status.UpdatedReplicas, int32(len(s.pods("v2"))+len(s.pods("broken"))); at != want {
				t.Errorf("updatedReplicas is %d, and %d pods are there", at, want)
			}
			s.deadline(1)
			s.hasEvent(v1alpha1.ReasonProgressDeadlineExceeded, tc.says[len(tc.says)-1])
		})
	}
}

// The node of a pod that is not ready is gone: the message names the node.
func TestMessage_LostNode(t *testing.T) {
	t.Parallel()
	c := clustertest.Shared(t)
	s := &env{T: t, c: c, ns: c.Namespace(t)}
	startControllerIn(t, c, s.ns, func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, "/api/v1/nodes/") {
				return clustertest.Refusal(r, http.StatusNotFound, metav1.StatusReasonNotFound), nil
			}
			return next.RoundTrip(r)
		})
	})
	s.install(4)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.bring("broken")
	clustertest.Wait(t, "the message", func() error {
		pods := s.pods("broken")
		if len(pods) == 0 {
			return errors.New("there is no pod")
		}
		node := pods[0].Spec.NodeName
		want := ": 1 pod on node " + node + ", which does not answer"
		if at := s.release().Status; node == "" || !strings.HasSuffix(at.Message, want) {
			return fmt.Errorf("%s: %q does not end with %q", at.Reason, at.Message, want)
		}
		return nil
	})
}

// A pod that crashes again and again is ready in between, so that it is never unready
// for long. Its cause is named all the same.
func TestMessage_CrashesAgainAndAgain(t *testing.T) {
	t.Parallel()
	s, _ := newEnvWithController(t)
	s.install(2)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.bring("v2")
	clustertest.Wait(t, "the cause", func() error {
		s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 1, "v2": 1})
		s.waits("v2", corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
			corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 2}})
		s.setReady("v2", false)
		s.waitFor(v1alpha1.ReasonUpgrading, 0, map[string]int32{"v1": 1, "v2": 1})
		message := s.release().Status.Message
		s.setReady("v2", true)
		if want := "1 pod not ready: CrashLoopBackOff, last exit code 2"; !strings.Contains(message, want) {
			return fmt.Errorf("%q has no %q", message, want)
		}
		return nil
	})
}

// Admission changes the labels of pods, so that their ReplicaSet knows none of them and
// makes others without end. The message names the labels, whether or not a label is left
// by which the pods are known.
func TestMessage_StrangePods(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ expression, labels string }{
		"one label":  {`[JSONPatch{op: "replace", path: "/metadata/labels/app", value: "other"}]`, "labels app of pods"},
		"all labels": {`[JSONPatch{op: "replace", path: "/metadata/labels", value: {"app": "other"}}]`, "labels app, pod-template-hash of pods"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := newEnvWithController(t)
			s.install(2)
			s.plan("1", "100%")
			s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
			s.relabels(tc.expression)
			s.quota(6) // or they would be made until the test ends
			s.bring("v2")
			clustertest.Wait(t, "the message", func() error {
				at := s.release().Status
				if want := "not selected by the ReplicaSet: an admission policy or webhook changes the " + tc.labels; !strings.Contains(at.Message, want) {
					return fmt.Errorf("%s: %q has no %q", at.Reason, at.Message, want)
				}
				return nil
			})
		})
	}
}

// relabels installs an admission policy that gives pods another label app.
func (s *env) relabels(expression string) {
	s.Helper()
	policy := clustertest.Mutation{Operations: "CREATE", Resources: "pods", Expression: expression}.Manifest(s.c, s.ns)
	s.Cleanup(func() {
		if out, err := s.c.KubectlWith(s, policy, "delete", "-f", "-"); err != nil {
			s.Errorf("deleting the policy: %v: %s", err, out)
		}
	})
	if out, err := s.c.KubectlWith(s, policy, "apply", "--server-side", "-f", "-"); err != nil {
		s.Fatalf("installing the policy: %v: %s", err, out)
	}
	clustertest.Wait(s, "the policy to act", func() error {
		probe := &corev1.Pod{Spec: template("probe", "v0").Spec}
		probe.Name, probe.Namespace, probe.Labels = "probe", s.ns, map[string]string{"app": "probe"}
		if err := s.c.Client.Create(s.Context(), probe, client.DryRunAll); err != nil {
			return err
		}
		if probe.Labels["app"] != "other" {
			return errors.New("a pod passes as it is")
		}
		return nil
	})
}

// While pods of a release are missing, all pods of its namespace are listed less and less
// often, and by pages. Lists by labels are of its own pods.
func TestMessage_PodsListed(t *testing.T) {
	t.Parallel()
	c := clustertest.Shared(t)
	s := &env{T: t, c: c, ns: c.Namespace(t)}
	var mu sync.Mutex
	all, unbounded := 0, 0
	count := func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if query := r.URL.Query(); r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/pods") && query.Get("labelSelector") == "" {
				mu.Lock()
				defer mu.Unlock()
				if all++; query.Get("limit") == "" {
					unbounded++
				}
			}
			return next.RoundTrip(r)
		})
	}
	clock := &jumpingClock{still: time.Now()}
	startReconciler(t, s.c, s.ns, clock.options(), func(*ctrl.Options) {}, count)
	s.install(2)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.quota(2)
	s.bring("v2")
	listed := func(want int, why string) {
		t.Helper()
		s.rounds(clock)
		s.rounds(clock)
		mu.Lock()
		defer mu.Unlock()
		if all != want || unbounded > 0 {
			t.Errorf("%s: all pods were listed %d times, want %d, and %d times without pages", why, all, want, unbounded)
		}
	}
	clustertest.Wait(t, "the pods to be listed", func() error {
		mu.Lock()
		defer mu.Unlock()
		if all == 0 {
			return errors.New("they were not")
		}
		return nil
	})
	listed(1, "at first")
	clock.pass(15 * time.Second)
	listed(2, "after 15 s")
	clock.pass(15 * time.Second)
	listed(2, "after 15 s more")
	clock.pass(15 * time.Second)
	listed(3, "after 30 s")
}
