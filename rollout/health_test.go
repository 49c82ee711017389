package rollout_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// pods returns the pods of a tag that are not being deleted.
func (s *env) pods(tag string) []corev1.Pod {
	s.Helper()
	var list corev1.PodList
	s.must(s.c.Client.List(s.Context(), &list, client.InNamespace(s.ns)))
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
		return p.DeletionTimestamp != nil || !strings.HasSuffix(p.Spec.Containers[0].Image, ":"+tag)
	})
}

// setReady writes the condition Ready of all pods of a tag, as a kubelet does when
// a container crashes and when it runs again.
func (s *env) setReady(tag string, ready bool) {
	s.Helper()
	status := map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}[ready]
	clustertest.Wait(s, fmt.Sprintf("Ready=%s of the pods of %s", status, tag), func() error {
		pods := s.pods(tag)
		if len(pods) == 0 {
			return fmt.Errorf("%s has no pods", tag)
		}
		for i := range pods {
			for j := range pods[i].Status.Conditions {
				c := &pods[i].Status.Conditions[j]
				if (c.Type == corev1.PodReady || c.Type == corev1.ContainersReady) && c.Status != status {
					c.Status, c.LastTransitionTime = status, metav1.Now()
				}
			}
			for j := range pods[i].Status.ContainerStatuses {
				pods[i].Status.ContainerStatuses[j].Ready = ready
			}
			if err := s.c.Client.Status().Update(s.Context(), &pods[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func podCondition(p *corev1.Pod, name corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range p.Status.Conditions {
		if c.Type == name {
			return c.Status
		}
	}
	return corev1.ConditionUnknown
}

// deadline sets the deadline of a step. A step that misses it goes back.
func (s *env) deadline(seconds int32) {
	s.Helper()
	s.edit(func(spec *v1alpha1.BatchReleaseSpec) {
		spec.Strategy.ProgressDeadlineSeconds, spec.Strategy.OnFailure = &seconds, v1alpha1.FailureRollback
	})
}

// isStalled fails unless the release says that it is stuck.
func (s *env) isStalled() {
	s.Helper()
	if c := s.release().Status.Conditions; !meta.IsStatusConditionTrue(c, v1alpha1.ConditionStalled) {
		s.Errorf("not Stalled: %+v", c)
	}
}

// neverWentBack fails if a ReplicaSet of the tag has had fewer pods.
func (s *env) neverWentBack(tag string) {
	s.Helper()
	for _, move := range s.resizes() {
		var from, to int
		if n, err := fmt.Sscanf(strings.TrimPrefix(move, tag+" "), "%d → %d", &from, &to); err == nil && n == 2 && to < from && strings.HasPrefix(move, tag+" ") {
			s.Errorf("%s was made smaller: %s", tag, move)
		}
	}
}

// A canary that is available and then is not, at its gate, misses the deadline and
// goes back. The deadline is short only once the canary is available. The status says so
// if the pods that run again fail, too.
func TestGate_CrashRollsBack(t *testing.T) {
	t.Parallel()
	s := atGate(t, 2)
	s.deadline(3)
	s.setReady("v2", false)
	s.waitFor(v1alpha1.ReasonRolledBack, 1, map[string]int32{"v1": 2})
	if image := s.deployment("web").Spec.Template.Spec.Containers[0].Image; !strings.HasSuffix(image, ":v1") {
		t.Errorf("image %s", image)
	}
	s.untouched()
	says := func(missing bool) {
		t.Helper()
		clustertest.Wait(t, "the pods that are missing in the status", func() error {
			if at := s.release().Status; strings.Contains(at.Message, ". But now 0 of 2 pods run "+at.StableRevision) != missing {
				return errors.New(at.Message)
			}
			return nil
		})
		s.waitFor(v1alpha1.ReasonRolledBack, 1, map[string]int32{"v1": 2})
		s.conditions(metav1.ConditionFalse, metav1.ConditionTrue)
	}
	says(false)
	s.setReady("v1", false)
	says(true)
	s.hasEvent(v1alpha1.ReasonPodsUnavailable, " of 2 pods run ") // the first of the two may be seen alone
	s.setReady("v1", true)
	says(false)
}

// A canary that crashes in its pause begins the whole pause again when it is back. It
// does not pass the gate in the next moment in which it is ready.
func TestGate_CrashBeginsThePauseAgain(t *testing.T) {
	t.Parallel()
	const pause = 6 * time.Second
	s, _ := newEnvWithController(t)
	s.install(2)
	s.plan("1", "100%")
	pausing := func(d time.Duration) {
		t.Helper()
		s.edit(func(spec *v1alpha1.BatchReleaseSpec) {
			spec.Strategy.Steps[0].Pause = &v1alpha1.Pause{Duration: metav1.Duration{Duration: d}}
		})
	}
	pausing(time.Hour)
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForPause, 0, map[string]int32{"v1": 1, "v2": 1})
	paused := time.Now()
	s.setReady("v2", false)
	s.waitFor(v1alpha1.ReasonUpgrading, 0, map[string]int32{"v1": 1, "v2": 1})
	pausing(pause)
	clustertest.Wait(t, "the first pause to be over", func() error {
		if since := time.Since(paused); since < pause+time.Second {
			return fmt.Errorf("%s have passed", since)
		}
		return nil
	})
	s.become(map[string]int32{"v1": 1, "v2": 1})

	ready := time.Now()
	s.setReady("v2", true)
	clustertest.Wait(t, "v2 to grow", func() error {
		if n := s.sizes()["v2"]; n < 2 {
			return fmt.Errorf("v2 has %d", n)
		}
		return nil
	})
	if after := time.Since(ready); after < pause-time.Second { // the status keeps whole seconds
		t.Errorf("the gate opened %s after the pods were back, before the pause of %s", after, pause)
	}
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v2": 2})
}

// room lets pods of [env.bringConfined] be scheduled, or not.
func (s *env) room(there bool) {
	s.Helper()
	var nodes corev1.NodeList
	s.must(s.c.Client.List(s.Context(), &nodes))
	node, label := nodes.Items[0].Name, "room-of/"+s.ns
	if !there {
		s.kubectl("label", "node", node, label+"-")
		return
	}
	s.kubectl("label", "node", node, label+"=yes")
	s.Cleanup(func() { _, _ = s.c.Kubectl(s, "label", "node", node, label+"-") })
}

// bringConfined releases a tag whose pods are scheduled only while there is room
// for this namespace.
func (s *env) bringConfined(tag string) {
	s.Helper()
	pods := template("web", tag)
	pods.Spec.NodeSelector = map[string]string{"room-of/" + s.ns: "yes"}
	s.edit(func(spec *v1alpha1.BatchReleaseSpec) {
		spec.Template, spec.Commit, spec.Approval = &pods, commitOf(tag), nil
	})
}

// quota lets the namespace have so many pods, and waits until the API server knows
// how many there are.
func (s *env) quota(pods int) {
	s.Helper()
	s.kubectl("-n", s.ns, "create", "quota", "pods", fmt.Sprintf("--hard=pods=%d", pods))
	clustertest.Wait(s, "the quota to count", func() error {
		var quota corev1.ResourceQuota
		s.must(s.c.Client.Get(s.Context(), client.ObjectKey{Namespace: s.ns, Name: "pods"}, &quota))
		if _, ok := quota.Status.Used[corev1.ResourcePods]; !ok {
			return fmt.Errorf("%+v", quota.Status)
		}
		return nil
	})
}

// noQuota takes it away. The ReplicaSet controller looks again at ReplicaSets that
// change, or else after a while that grows.
func (s *env) noQuota() {
	s.Helper()
	s.kubectl("-n", s.ns, "delete", "quota", "pods")
	s.kubectl("-n", s.ns, "annotate", "rs", "--all", "look=again")
}

// The cluster cannot have the pods of a canary at its gate. The release stalls after the
// deadline and does not go back: that proves nothing against the revision. With its pods
// back it goes on.
func TestGate_MissingPodsStall(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ take, give func(s *env) }{
		"evicted and not schedulable": {
			func(s *env) {
				s.room(false)
				clustertest.Wait(s, "a pod that cannot be scheduled", func() error {
					for _, p := range s.pods("v2") {
						if p.Spec.NodeName != "" { // the scheduler may not have seen that there is no room
							evict := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace}}
							s.must(client.IgnoreNotFound(s.c.Client.SubResource("eviction").Create(s.Context(), &p, evict)))
						} else if podCondition(&p, corev1.PodScheduled) == corev1.ConditionFalse {
							return nil
						}
					}
					return errors.New("there is none")
				})
			},
			func(s *env) { s.room(true) },
		},
		"quota used up": {
			func(s *env) {
				s.quota(1)
				for _, p := range s.pods("v2") {
					s.must(s.c.Client.Delete(s.Context(), &p))
				}
				clustertest.Wait(s, "a pod that is not created", func() error {
					for _, c := range s.set("v2").Status.Conditions {
						if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue {
							return nil
						}
					}
					return errors.New("all are")
				})
			},
			func(s *env) { s.noQuota() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := newEnvWithController(t)
			s.install(2)
			s.plan("1", "100%")
			s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
			s.room(true)
			s.bringConfined("v2")
			s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 1, "v2": 1})
			tc.take(s)
			s.deadline(3)
			s.waitFor(v1alpha1.ReasonProgressDeadlineExceeded, 0, map[string]int32{"v1": 1, "v2": 1})
			s.isStalled()
			s.deadline(600)
			tc.give(s)
			s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 1, "v2": 1})
			s.finish(2)
			s.neverWentBack("v2")
		})
	}
}

// More replicas at a gate, for which a quota leaves no pods: the release waits, says
// so after the deadline, and does not go back.
func TestGate_RaisedTargetUnderAQuota(t *testing.T) {
	t.Parallel()
	s, _ := newEnvWithController(t)
	s.install(2)
	s.plan("50%", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 1, "v2": 1})
	s.deadline(3)
	s.quota(2)
	s.kubectl("-n", s.ns, "scale", "deployment/web", "--replicas=4")
	s.waitFor(v1alpha1.ReasonProgressDeadlineExceeded, 0, map[string]int32{"v1": 2, "v2": 2})
	s.isStalled()
	s.deadline(600)
	s.noQuota()
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 2, "v2": 2})
	s.finish(4)
	s.neverWentBack("v2")
}

// A user writes an approval to the status before the step's pods are available. It opens
// the gate once they are, and does not keep a step that fails from going back.
func TestApprovalBeforeThePodsAreAvailable(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T, bring func(*env)) *env {
		t.Helper()
		s, _ := newEnvWithController(t)
		s.install(2)
		s.plan("1", "100%")
		s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
		bring(s)
		s.waitFor(v1alpha1.ReasonUpgrading, 0, nil)
		s.kubectl("-n", s.ns, "patch", "batchrelease", "web", "--subresource=status", "--type=merge", "-p", `{"status":{"currentStepState":"Completed"}}`)
		return s
	}
	t.Run("they come", func(t *testing.T) {
		t.Parallel()
		s := begin(t, func(s *env) { s.bringConfined("v2") })
		s.hasEvent(v1alpha1.ReasonStepApproved, "the gate opens once the step's pods are available")
		s.become(map[string]int32{"v1": 2, "v2": 1})
		s.room(true)
		s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v2": 2})
		s.untouched()
	})
	t.Run("they do not come", func(t *testing.T) {
		t.Parallel()
		s := begin(t, func(s *env) { s.bring("broken") })
		s.become(map[string]int32{"v1": 2, "broken": 1})
		s.deadline(3)
		s.waitFor(v1alpha1.ReasonRolledBack, 1, map[string]int32{"v1": 2})
		s.untouched()
	})
}

// The largest deadline, which is the native controller's way to say none, with
// minReadySeconds on top of it.
func TestDeadline_Largest(t *testing.T) {
	t.Parallel()
	s, _ := newEnvWithController(t)
	s.install(2, func(d *appsv1.Deployment) {
		d.Spec.MinReadySeconds, d.Spec.ProgressDeadlineSeconds = 1, ptr.To(int32(math.MaxInt32))
	})
	s.plan("1", "100%")
	s.deadline(math.MaxInt32)
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 1, "v2": 1})
	s.finish(2)
}

// A controller that is killed again and again, more often than the deadline, fails a
// release all the same. Each one takes up the clock where the last one left it.
func TestDeadline_RestartedAgainAndAgain(t *testing.T) {
	t.Parallel()
	const life = 4 * time.Second
	s, stop := atGateOf(t, 2)
	s.deadline(24)
	s.setReady("v2", false)
	s.waitFor(v1alpha1.ReasonUpgrading, 0, map[string]int32{"v1": 1, "v2": 1})
	stop()
	clustertest.Wait(t, "the release to go back", func() error {
		clock := &jumpingClock{}
		stop := startReconciler(t, s.c, s.ns, clock.options(), func(*ctrl.Options) {})
		defer stop()
		clustertest.Wait(t, "it to look", func() error {
			if clock.reads() == 0 {
				return errors.New("it has not read its clock")
			}
			return nil
		})
		time.Sleep(life) // how long this one lives
		if sizes := s.sizes(); sizes["v1"] != 2 || sizes["v2"] != 0 {
			return fmt.Errorf("sizes %v", sizes)
		}
		return nil
	})
	startControllerIn(t, s.c, s.ns)
	s.waitFor(v1alpha1.ReasonRolledBack, 1, map[string]int32{"v1": 2})
	s.untouched()
}
