package rollout_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
	"github.com/tranche-dev/tranche/rollout/engine"
)

const annotatesTemplates = `Object{spec: Object.spec{template: Object.spec.template{metadata: Object.spec.template.metadata{annotations: {"injected.example.org/by": "policy"}}}}}`

// mutateReplicaSets installs a mutating policy for the ReplicaSets of the namespace, and
// waits until the API server acts by it. It returns what takes the policy away.
func (s *env) mutateReplicaSets(operations, condition string) (remove func()) {
	s.Helper()
	return s.mutateTemplates("replicasets", operations, condition)
}

// mutateTemplates is mutateReplicaSets for ReplicaSets among other resources.
func (s *env) mutateTemplates(resources, operations, condition string) (remove func()) {
	s.Helper()
	m := clustertest.Mutation{Operations: operations, Resources: resources, Condition: condition, Expression: annotatesTemplates}
	manifest := m.Manifest(s.c, s.ns)
	if out, err := s.c.KubectlWith(s, manifest, "apply", "--server-side", "-f", "-"); err != nil {
		s.Fatalf("installing the policy: %v: %s", err, out)
	}
	acts := func(want bool) error {
		probe := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-", Namespace: s.ns}, Spec: appsv1.ReplicaSetSpec{
			Replicas: ptr.To(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "probe"}}, Template: template("probe", "v0"),
		}}
		if err := s.c.Client.Create(s.Context(), probe); err != nil {
			return err
		}
		if err := s.c.Client.Delete(s.Context(), probe); err != nil {
			return err
		}
		if acts := probe.Spec.Template.Annotations[injected] != ""; acts != want {
			return fmt.Errorf("the policy acts: %t", acts)
		}
		return nil
	}
	clustertest.Wait(s, "the policy to act", func() error { return acts(true) })
	gone := false
	remove = func() {
		s.Helper()
		if gone {
			return
		}
		gone = true
		if out, err := s.c.KubectlWith(s, manifest, "delete", "-f", "-"); err != nil {
			s.Errorf("deleting the policy: %v: %s", err, out)
		}
		if s.Context().Err() == nil { // the test goes on
			clustertest.Wait(s, "the policy to be gone", func() error { return acts(false) })
		}
	}
	s.Cleanup(remove)
	return remove
}

// unchanged fails unless these ReplicaSets and pods run, and no others.
func (s *env) unchanged(before map[string]string) {
	s.Helper()
	if diff := cmp.Diff(before, s.running()); diff != "" {
		s.Errorf("what runs (-before +after):\n%s", diff)
	}
}

// refused waits until the release is Stalled with WriteRefused and names the field.
func (s *env) refused(step int32, sizes map[string]int32) {
	s.Helper()
	s.waitFor(v1alpha1.ReasonWriteRefused, step, sizes)
	br := s.release()
	if !stalled(br) || !strings.Contains(br.Status.Message, "an admission policy or webhook") {
		s.Errorf("stalled=%t: %s", stalled(br), br.Status.Message)
	}
}

func stalled(br *v1alpha1.BatchRelease) bool {
	for _, c := range br.Status.Conditions {
		if c.Type == v1alpha1.ConditionStalled {
			return c.Status == metav1.ConditionTrue
		}
	}
	return false
}

// disturb has the controller look again and again.
func (s *env) disturb() {
	s.Helper()
	for i := range 5 {
		s.kubectl("-n", s.ns, "label", "--overwrite", "deployment/web", fmt.Sprintf("disturbed=%d", i)) // an annotation would be copied to a ReplicaSet
		s.nativeHasSeen("web")
	}
}

// Admission changes the pod template of ReplicaSets, and a dry run shows it: no hold is
// taken and no ReplicaSet is written. The release goes on when the policy is gone.
func TestReplicaSetsUnderAMutatingPolicy(t *testing.T) {
	t.Parallel()
	for _, operations := range []string{"CREATE", "CREATE, UPDATE"} {
		t.Run(operations, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			var calls requests
			startControllerIn(t, s.c, s.ns, calls.count)
			s.install(4)
			s.plan("1", "100%")
			s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
			remove := s.mutateReplicaSets(operations, "true")
			before := s.running()
			calls.forget()
			s.bring("v2")
			s.refused(0, map[string]int32{"v1": 4})
			if m := s.release().Status.Message; !strings.Contains(m, "spec.template.metadata.annotations") {
				t.Errorf("it names no field: %s", m)
			}
			s.hasEvent(v1alpha1.ReasonWriteRefused, "spec.template.metadata.annotations")
			s.untouched()
			s.unchanged(before)
			if n := calls.of(http.MethodPost, "/replicasets") + calls.of(http.MethodPatch, "/replicasets") + calls.of(http.MethodPatch, "/deployments"); n > 0 {
				t.Errorf("%d writes\n%s", n, calls.String())
			}
			remove()
			s.kubectl("-n", s.ns, "annotate", "batchrelease/web", "look=again")
			s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
			s.finish(4)
		})
	}
}

// No dry run shows what admission does to ReplicaSets. The one that is made loses its
// pods again, and the Deployment is handed back at the stable template. Nothing is made
// before a minute has passed.
func TestReplicaSetsUnderAMutatingPolicy_NotForeseen(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	var calls requests
	clock := &jumpingClock{still: time.Now()} // so the minute is not over before the test has looked
	startReconciler(t, s.c, s.ns, clock.options(), func(*ctrl.Options) {}, calls.count)
	s.install(4)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	remove := s.mutateReplicaSets("CREATE", outsideDryRuns)
	before := s.running()
	s.bring("v2")
	clustertest.Wait(s, "the hand-back", func() error {
		d, br := s.deployment("web"), s.release()
		if engine.Held(d) || br.Status.Reason != v1alpha1.ReasonWriteRefused || s.sizes()["v1"] != 4 || len(s.sizes()) != 1 {
			return fmt.Errorf("held=%t, %s: %s; sizes %v", engine.Held(d), br.Status.Reason, br.Status.Message, s.sizes())
		}
		return nil
	})
	s.refused(0, map[string]int32{"v1": 4})
	s.untouched()
	calls.forget()
	s.disturb()
	s.refused(0, map[string]int32{"v1": 4})
	if n := calls.of(http.MethodPost, "/replicasets") + calls.of(http.MethodPatch, "/deployments"); n > 0 {
		t.Errorf("%d writes\n%s", n, calls.String())
	}
	s.unchanged(before)
	var made int
	for _, rs := range s.sets() {
		if rs.Spec.Template.Annotations[injected] != "" {
			made++
		}
	}
	if n := ptr.Deref(s.deployment("web").Status.CollisionCount, 0); made != 1 || n > 0 {
		t.Errorf("%d ReplicaSets made, %d collisions\n%s", made, n, s.w.Timeline())
	}
	// A user who changes the BatchRelease has the controller try at once.
	s.kubectl("-n", s.ns, "annotate", "batchrelease/web", "look=again")
	clustertest.Wait(s, "another trial", func() error {
		if calls.of(http.MethodPost, "/replicasets") == 0 {
			return errors.New("no ReplicaSet was made")
		}
		return nil
	})
	s.refused(0, map[string]int32{"v1": 4})
	remove()
	s.kubectl("-n", s.ns, "annotate", "--overwrite", "batchrelease/web", "look=once-more")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
	s.finish(4)
}

// Admission comes in the middle of a release, and acts outside dry runs only. The resize
// is refused, and nothing moves.
func TestReplicaSetsUnderAMutatingPolicy_InTheMiddle(t *testing.T) {
	t.Parallel()
	for _, condition := range []string{"true", outsideDryRuns} {
		t.Run(condition, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			var calls requests
			startControllerIn(t, s.c, s.ns, calls.count)
			s.install(4)
			s.plan("1", "2", "100%")
			s.waitFor(v1alpha1.ReasonReleaseCompleted, 2, nil)
			s.bring("v2")
			s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
			remove := s.mutateReplicaSets("CREATE, UPDATE", condition)
			before := s.running()
			s.approve(0)
			s.refused(1, map[string]int32{"v1": 3, "v2": 1})
			calls.forget()
			s.disturb()
			s.unchanged(before)
			if n := calls.of(http.MethodPatch, "/replicasets"); n > 30 { // a few for each disturbance
				t.Errorf("%d writes\n%s", n, calls.String())
			}
			for _, rs := range s.sets() {
				if rs.Spec.Template.Annotations[injected] != "" {
					t.Errorf("ReplicaSet %s is changed", rs.Name)
				}
			}
			// Another template: its ReplicaSet would be changed, too.
			s.bring("v3")
			s.refused(0, map[string]int32{"v1": 3, "v2": 1})
			s.unchanged(before)
			remove()
			s.kubectl("-n", s.ns, "annotate", "batchrelease/web", "look=again")
			s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v3": 1})
			s.approve(0)
			s.waitFor(v1alpha1.ReasonWaitingForApproval, 1, map[string]int32{"v1": 2, "v3": 2})
			s.approve(1)
			s.waitFor(v1alpha1.ReasonReleaseCompleted, 2, map[string]int32{"v3": 4})
			s.untouched()
		})
	}
}

// noReplicaSets fails each creation of a ReplicaSet, as a network would. Dry runs pass.
func noReplicaSets(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/replicasets") && !r.URL.Query().Has("dryRun") {
			return nil, errors.New("made by a test")
		}
		return next.RoundTrip(r)
	})
}

// Admission that changes Deployments and ReplicaSets alike comes while a release is held
// and has no pods yet. If the next release is refused, the hand-back would be changed,
// too. It is tried before it is written, and no pod is replaced.
func TestTemplatesUnderAMutatingPolicy_HeldWithoutPods(t *testing.T) {
	t.Parallel()
	for _, next := range []string{"v3", "v1"} {
		t.Run(next, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			startControllerIn(t, s.c, s.ns, noReplicaSets)
			s.install(4)
			s.plan("1", "100%")
			s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
			before := s.running()
			s.bring("v2")
			clustertest.Wait(s, "the hold", func() error {
				if d := s.deployment("web"); !engine.Held(d) {
					return fmt.Errorf("%+v", d.Spec.Strategy)
				}
				return nil
			})
			remove := s.mutateTemplates("deployments, replicasets", "CREATE, UPDATE", "true")
			s.bring(next)
			clustertest.Wait(s, "the refusal of the hand-back", func() error {
				if br := s.release(); !stalled(br) || br.Status.Reason != v1alpha1.ReasonHandBackRefused {
					return fmt.Errorf("%s: %s", br.Status.Reason, br.Status.Message)
				}
				return nil
			})
			s.disturb()
			s.unchanged(before)
			remove()
		})
	}
}

// killedAt is a transport of a controller that is killed once the API server has made a
// ReplicaSet.
type killedAt struct {
	next http.RoundTripper
	dead *atomic.Bool
}

func (k killedAt) RoundTrip(r *http.Request) (*http.Response, error) {
	if k.dead.Load() {
		return nil, errors.New("killed")
	}
	answer, err := k.next.RoundTrip(r)
	if err == nil && r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/replicasets") && !r.URL.Query().Has("dryRun") {
		k.dead.Store(true)
		_ = answer.Body.Close()
		return nil, errors.New("killed")
	}
	return answer, err
}

// No dry run shows what admission does to ReplicaSets, and the controller is killed right
// after it has made one. That one gets no pod, and the next controller finds its way.
func TestReplicaSetsUnderAMutatingPolicy_Killed(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	var dead atomic.Bool
	stop := startControllerIn(t, s.c, s.ns, func(next http.RoundTripper) http.RoundTripper { return killedAt{next, &dead} })
	s.install(4)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	remove := s.mutateReplicaSets("CREATE", outsideDryRuns)
	before := s.running()
	s.bring("v2")
	clustertest.Wait(s, "the controller to be killed", func() error {
		if !dead.Load() {
			return errors.New("it made no ReplicaSet")
		}
		return nil
	})
	stop()
	for _, rs := range s.sets() {
		if changed := rs.Spec.Template.Annotations[injected] != ""; changed && *rs.Spec.Replicas > 0 {
			t.Errorf("ReplicaSet %s is left with %d pods", rs.Name, *rs.Spec.Replicas)
		}
	}
	s.disturb() // the native controller leaves it alone
	s.unchanged(before)
	startControllerIn(t, s.c, s.ns)
	clustertest.Wait(s, "the hand-back", func() error {
		if d, br := s.deployment("web"), s.release(); engine.Held(d) || br.Status.Reason != v1alpha1.ReasonWriteRefused {
			return fmt.Errorf("held=%t, %s: %s; sizes %v", engine.Held(d), br.Status.Reason, br.Status.Message, s.sizes())
		}
		return nil
	})
	s.refused(0, map[string]int32{"v1": 4})
	s.untouched()
	s.unchanged(before)
	remove()
	s.kubectl("-n", s.ns, "annotate", "batchrelease/web", "look=again")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
	s.finish(4)
}

// While no ReplicaSet can be made, the two that are there follow an autoscaler: up and
// down, within the surge.
func TestReplicaSetsUnderAMutatingPolicy_Scaled(t *testing.T) {
	t.Parallel()
	for name, condition := range map[string]string{"always": "true", "outside dry runs": outsideDryRuns, "forbidden": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			var forbidden atomic.Bool
			startControllerIn(t, s.c, s.ns, func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(r *http.Request) (*http.Response, error) {
					if forbidden.Load() && r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/replicasets") && !r.URL.Query().Has("dryRun") {
						return clustertest.Refusal(r, http.StatusForbidden, metav1.StatusReasonForbidden), nil
					}
					return next.RoundTrip(r)
				})
			})
			s.install(4)
			s.plan("2", "100%")
			s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
			s.bring("v2")
			s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 2, "v2": 2})
			remove := func() { forbidden.Store(false) }
			if condition != "" {
				remove = s.mutateReplicaSets("CREATE", condition)
			}
			forbidden.Store(condition == "")
			s.bring("v3")
			clustertest.Wait(s, "the refusal", func() error {
				if br := s.release(); !stalled(br) || br.Status.Reason != v1alpha1.ReasonWriteRefused {
					return fmt.Errorf("%s: %s", br.Status.Reason, br.Status.Message)
				}
				return nil
			})
			for _, n := range []int32{8, 5} {
				s.kubectl("-n", s.ns, "scale", "deployment/web", fmt.Sprintf("--replicas=%d", n))
				clustertest.Wait(s, fmt.Sprintf("%d pods", n), func() error {
					is := s.sizes()
					grown := is["v1"] == 6 && is["v2"] == 2 // the stable one takes what comes
					if n == 5 {
						grown = is["v2"] < 2 // the superseded one goes first
					}
					if is["v1"]+is["v2"] != n || is["v3"] > 0 || !grown {
						return fmt.Errorf("sizes %v: %s", is, s.release().Status.Message)
					}
					if d := s.deployment("web"); d.Status.AvailableReplicas != n { // what is not ready would go first
						return fmt.Errorf("%d are available", d.Status.AvailableReplicas)
					}
					return nil
				})
			}
			remove()
			s.kubectl("-n", s.ns, "annotate", "batchrelease/web", "look=again")
			s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v3": 2})
			s.approve(0)
			s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v3": 5})
		})
	}
}

// capReplicaSets installs a mutating policy that allows each ReplicaSet of the namespace
// three pods at most. It waits until the API server acts by it.
func (s *env) capReplicaSets() (remove func()) {
	s.Helper()
	manifest := clustertest.Mutation{
		Operations: "UPDATE", Resources: "replicasets", Condition: "object.spec.replicas > 3", Expression: "Object{spec: Object.spec{replicas: 3}}",
	}.Manifest(s.c, s.ns)
	if out, err := s.c.KubectlWith(s, manifest, "apply", "--server-side", "-f", "-"); err != nil {
		s.Fatalf("installing the policy: %v: %s", err, out)
	}
	stored := func(want int32) error {
		rs := s.set("v1")
		if err := s.c.Client.Patch(s.Context(), rs, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":9}}`)), client.DryRunAll); err != nil {
			return err
		}
		if *rs.Spec.Replicas != want {
			return fmt.Errorf("%d replicas pass", *rs.Spec.Replicas)
		}
		return nil
	}
	clustertest.Wait(s, "the policy to act", func() error { return stored(3) })
	uninstall := s.without(manifest)
	return func() {
		s.Helper()
		uninstall()
		clustertest.Wait(s, "the policy to be gone", func() error { return stored(9) })
	}
}

// Admission stores another size than was sent. A dry run shows it before the hold, and
// nothing is written. In the middle of a release the first such write is the last one. The
// release is Stalled and says why. Its healthy revision is not rolled back.
func TestReplicaSetsUnderAPolicyOfTheirSize(t *testing.T) {
	t.Parallel()
	c := clustertest.Shared(t)
	s := &env{T: t, c: c, ns: c.Namespace(t)} // with no watcher: the policy takes pods away
	startControllerIn(t, c, s.ns)
	s.install(6)
	s.plan("1", "2", "100%")
	s.edit(func(spec *v1alpha1.BatchReleaseSpec) { spec.Strategy.OnFailure = v1alpha1.FailureRollback })
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 2, nil)
	remove := s.capReplicaSets()
	s.bring("v2")
	s.refused(0, map[string]int32{"v1": 6})
	if engine.Held(s.deployment("web")) {
		t.Error("the hold is taken")
	}
	s.hasEvent(v1alpha1.ReasonWriteRefused, "6 was sent, and 3 came back")
	lookAgain := func(value string) {
		s.kubectl("-n", s.ns, "annotate", "--overwrite", "batchrelease/web", "look="+value)
	}
	remove()
	lookAgain("held")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 5, "v2": 1})

	remove = s.capReplicaSets()
	s.approve(0)
	s.refused(1, map[string]int32{"v1": 3, "v2": 2})
	if m := s.release().Status.Message; !strings.Contains(m, "4 was sent, and 3 came back") {
		t.Errorf("message %q", m)
	}
	s.edit(func(spec *v1alpha1.BatchReleaseSpec) { spec.Strategy.ProgressDeadlineSeconds = ptr.To(int32(1)) })
	for i := range 3 { // each is a trial
		lookAgain(fmt.Sprint(i))
		s.disturb()
		s.refused(1, map[string]int32{"v1": 3, "v2": 2})
	}
	clustertest.Wait(t, "the counts of the status", func() error {
		if st, rs := s.release().Status, s.set("v2").Status; st.Replicas != 6 || st.UpdatedReplicas != 2 || st.UpdatedReadyReplicas != 2 || rs.ReadyReplicas != 2 {
			return fmt.Errorf("%d of %d, %d ready; the ReplicaSet has %d ready", st.UpdatedReplicas, st.Replicas, st.UpdatedReadyReplicas, rs.ReadyReplicas)
		}
		return nil
	})
	if st := s.release().Status; st.RollingBack || st.FailedRevision != "" {
		t.Errorf("rolled back: %s", st.FailedMessage)
	}
	// The pods of the next trial may take longer than a second.
	s.edit(func(spec *v1alpha1.BatchReleaseSpec) { spec.Strategy.ProgressDeadlineSeconds = nil })
	s.refused(1, map[string]int32{"v1": 3, "v2": 2})
	remove()
	lookAgain("free")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 1, map[string]int32{"v1": 4, "v2": 2})
}
