package rollout_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// injected is the annotation that the mutating policy of these tests adds to the
// pod templates of Deployments.
const injected = "injected.example.org/by"

// mutate installs a mutating policy for the namespace, and waits until the API server
// acts by it. remove takes the policy away.
func (s *env) mutate() (remove func()) {
	s.Helper()
	m := clustertest.Mutation{Operations: "CREATE, UPDATE", Resources: "deployments", Expression: annotatesTemplates}
	manifest := m.Manifest(s.c, s.ns)
	if out, err := s.c.KubectlWith(s, manifest, "apply", "--server-side", "-f", "-"); err != nil {
		s.Fatalf("installing the policy: %v: %s", err, out)
	}
	acts := func(want bool) error {
		out, err := s.c.Kubectl(s, "-n", s.ns, "annotate", "deployment/web", "tried=yes", "--dry-run=server", "-o", "yaml")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if got := strings.Contains(out, injected+": policy"); got != want {
			return fmt.Errorf("the policy acts: %t", got)
		}
		return nil
	}
	clustertest.Wait(s, "the policy to act", func() error { return acts(true) })
	return s.without(manifest)
}

// without returns what deletes the objects of a manifest, once, at the latest at the end
// of the test.
func (s *env) without(manifest string) (remove func()) {
	remove = sync.OnceFunc(func() {
		s.Helper()
		if out, err := s.c.KubectlWith(s, manifest, "delete", "-f", "-"); err != nil {
			s.Errorf("deleting the policy: %v: %s", err, out)
		}
	})
	s.Cleanup(remove)
	return remove
}

// mutated returns how many pods ReplicaSets with the annotation of the policy are
// to have.
func (s *env) mutated() (n int32) {
	s.Helper()
	for _, rs := range s.sets() {
		if rs.Spec.Template.Annotations[injected] != "" {
			n += *rs.Spec.Replicas
		}
	}
	return n
}

// A mutating policy that comes under a hold would change the pod template at the
// hand-back, and the native controller would replace all pods. The hold stays, the
// status names the field, and the release ends by itself once the policy is gone.
func TestHandBackUnderAMutatingPolicy(t *testing.T) {
	t.Parallel()
	s := atGate(t, 4)
	remove := s.mutate()
	s.approve(0)
	s.waitFor(v1alpha1.ReasonHandBackRefused, 1, map[string]int32{"v2": 4})
	s.stalled("spec.template.metadata.annotations")
	s.hasEvent(v1alpha1.ReasonHandBackRefused, "spec.template.metadata.annotations")
	d := s.deployment("web")
	if !engine.Held(d) || d.Spec.Template.Annotations[injected] != "" {
		t.Errorf("held=%t, annotations %v", engine.Held(d), d.Spec.Template.Annotations)
	}
	remove()
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v2": 4})
	s.untouched()
	if n := s.mutated(); n > 0 {
		t.Errorf("%d pods run what the policy made", n)
	}
}

// A policy refuses to resume a Deployment, as in a change freeze, and the next version comes. All pods run one by
// then, by all its gates. They stay, and a revert leads back to it.
func TestHandBackRefused_NextRelease(t *testing.T) {
	t.Parallel()
	s := atGate(t, 4)
	own, err := client.New(s.c.Controller, client.Options{Scheme: s.c.Scheme})
	s.must(err)
	passes := "!has(oldObject.spec.paused) || !oldObject.spec.paused || has(object.spec.paused) && object.spec.paused"
	thaw := refuse(s, "freeze", "deployments", passes, "no resume in the freeze", func() error {
		// A whole hand-back, which the installed policies let pass. A part of one would be refused by both, and the
		// API server names the first that it asks.
		resumed := client.RawPatch(types.MergePatchType, fmt.Appendf(nil,
			`{"metadata":{"labels":{%q:null}},"spec":{"paused":false,"strategy":{"type":"RollingUpdate"}}}`, v1alpha1.LabelHeld))
		return own.Patch(s.Context(), s.deployment("web"), resumed, client.DryRunAll, client.FieldOwner(v1alpha1.ManagerRollout))
	})
	s.approve(0)
	s.waitFor(v1alpha1.ReasonWriteRefused, 1, map[string]int32{"v2": 4})
	s.bring("v3")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v2": 3, "v3": 1})
	s.bring("v2")
	clustertest.Wait(s, "the way back", func() error {
		if got := s.sizes(); len(got) != 1 || got["v2"] != 4 {
			return fmt.Errorf("sizes %v: %s", got, s.release().Status.Message)
		}
		return nil
	})
	thaw()
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v2": 4})
	s.untouched()
}

// stalled fails unless the release says Stalled with a message that says something,
// and the Deployment is held.
func (s *env) stalled(what string) {
	s.Helper()
	br := s.release()
	conditions := map[string]metav1.ConditionStatus{}
	for _, c := range br.Status.Conditions {
		conditions[c.Type] = c.Status
	}
	if conditions[v1alpha1.ConditionStalled] != metav1.ConditionTrue || conditions[v1alpha1.ConditionReady] != metav1.ConditionFalse ||
		conditions[v1alpha1.ConditionHeld] != metav1.ConditionTrue || !strings.Contains(br.Status.Message, what) {
		s.Errorf("conditions %v; %s", conditions, br.Status.Message)
	}
}

// At 0 replicas there are no pods to replace, and a hold is no safe place. The Deployment
// is handed back, an event names the field, and the release goes on behind its gate.
func TestParkUnderAMutatingPolicy(t *testing.T) {
	t.Parallel()
	s := atGate(t, 4)
	s.mutate()
	s.kubectl("-n", s.ns, "scale", "deployment/web", "--replicas=0")
	s.waitFor(v1alpha1.ReasonScaledToZero, 0, map[string]int32{})
	s.untouched()
	s.warned(v1alpha1.ReasonHandedBack, "spec.template.metadata.annotations")
	s.kubectl("-n", s.ns, "scale", "deployment/web", "--replicas=4")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
}

// warned waits for a warning about the Deployment.
func (s *env) warned(reason, what string) {
	s.Helper()
	clustertest.Wait(s, "a warning "+reason, func() error {
		var events corev1.EventList
		s.must(s.c.Client.List(s.Context(), &events))
		for _, e := range events.Items {
			if e.Namespace == s.ns && e.Reason == reason && e.Type == corev1.EventTypeWarning && e.InvolvedObject.Kind == "Deployment" && strings.Contains(e.Message, what) {
				return nil
			}
		}
		return fmt.Errorf("%d events, and none of them", len(events.Items))
	})
}

// A plan that is deleted lets go of its Deployment all the same: nothing else would
// end the hold. An event names what the policy has changed.
func TestPlanDeletedUnderAMutatingPolicy(t *testing.T) {
	t.Parallel()
	s, _ := newEnvWithController(t)
	s.install(4)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
	s.mutate()
	s.unplan()
	s.warned(v1alpha1.ReasonHandedBack, "spec.template.metadata.annotations")
	s.rolled("web", 4)
	if n := s.mutated(); n != 4 {
		t.Errorf("%d pods run what the Deployment says", n)
	}
	if d := s.deployment("web"); d.Spec.Paused || d.Labels[v1alpha1.LabelHeld] != "" {
		t.Errorf("it is held: %+v", d.Spec)
	}
}

// A user who labels many Deployments as held costs a write for each, and keeps no release of
// others waiting.
func TestHandBack_ManyLabels(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	const n = 40
	for i := range n {
		name := fmt.Sprintf("labelled-%d", i)
		s.must(s.c.Client.Create(t.Context(), &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.ns, Labels: map[string]string{v1alpha1.LabelHeld: "true"}},
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To[int32](0), Template: template(name, "v1"),
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			},
		}))
	}
	var writes atomic.Int32
	startControllerIn(t, s.c, s.ns, func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/deployments/labelled-") {
				writes.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	clustertest.Wait(t, "the labels to be off", func() error {
		var list appsv1.DeploymentList
		s.must(s.c.Client.List(t.Context(), &list, client.InNamespace(s.ns), client.HasLabels{v1alpha1.LabelHeld}))
		if len(list.Items) > 0 {
			return fmt.Errorf("%d are labelled", len(list.Items))
		}
		return nil
	})
	if got := writes.Load(); got > 3*n {
		t.Errorf("%d requests write %d Deployments", got, n)
	} else {
		t.Logf("%d requests write %d Deployments", got, n)
	}
}
