package rollout_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// A BatchRelease of a GitSource is restored from a back-up that is two releases old, with its
// status. No pod moves before the GitSource has written it, and none by that.
func TestRestoredOlderPlan(t *testing.T) {
	t.Parallel()
	s, stop := newEnvWithController(t)
	s.install(3)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v1": 3})
	var old, last *v1alpha1.BatchRelease
	for _, tag := range []string{"v2", "v3"} {
		s.bring(tag)
		s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, nil)
		s.approve(0)
		s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{tag: 3})
		old, last = last, s.release()
	}
	stop()
	s.must(s.c.Client.Delete(t.Context(), s.release()))
	old.Labels = map[string]string{v1alpha1.LabelSource: "shop", v1alpha1.LabelSourceNamespace: s.ns}
	s.restore(old)
	s.restoreStatus(old)
	writes := func() int {
		return s.w.Writes("ReplicaSet", v1alpha1.ManagerRollout) + s.w.Writes("Deployment", v1alpha1.ManagerRollout)
	}
	before := writes()
	startControllerIn(t, s.c, s.ns)
	s.waitsForSource("There is no GitSource " + s.ns + "/shop")
	s.must(s.c.Client.Create(t.Context(), &v1alpha1.GitSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "shop"}, Spec: v1alpha1.GitSourceSpec{URL: "file:///nowhere", Suspend: true},
	}))
	s.kubectl("-n", s.ns, "annotate", "batchrelease/web", "example.org/look=now") // or within a minute
	s.waitsForSource("The GitSource is suspended")
	s.stay(map[string]int32{"v3": 3})
	s.applyPlan(last)
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v3": 3})
	if n := writes() - before; n > 0 {
		t.Errorf("%d writes of the Deployment and its ReplicaSets\n%s", n, s.w.Timeline())
	}
	s.bring("v4")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v3": 2, "v4": 1})
}

// waitsForSource waits until the status says that the plan is unconfirmed, and why.
func (s *env) waitsForSource(why string) {
	s.Helper()
	clustertest.Wait(s, "the plan to wait for its source", func() error {
		if at := s.release().Status; at.Reason != v1alpha1.ReasonWaitingForSource || !strings.Contains(at.Message, why) {
			return fmt.Errorf("%s: %s", at.Reason, at.Message)
		}
		return nil
	})
}

// applyPlan applies a BatchRelease as its GitSource does.
func (s *env) applyPlan(br *v1alpha1.BatchRelease) {
	s.Helper()
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&br.Spec)
	s.must(err)
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("BatchRelease"))
	u.SetNamespace(s.ns)
	u.SetName("web")
	u.SetLabels(map[string]string{v1alpha1.LabelSource: "shop", v1alpha1.LabelSourceNamespace: s.ns})
	s.must(s.c.Client.Apply(s.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(v1alpha1.ManagerGitSync), client.ForceOwnership))
}

// A controller that has just begun does not read a BatchRelease to learn that its GitSource has written it.
func TestConfirmedByTheCache(t *testing.T) {
	t.Parallel()
	s, stop := newEnvWithController(t)
	s.install(3)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v1": 3})
	s.applyPlan(s.release())
	stop()
	var q requests
	startControllerIn(t, s.c, s.ns, q.count)
	s.edit(func(spec *v1alpha1.BatchReleaseSpec) { spec.Strategy.ProgressDeadlineSeconds = ptr.To(int32(1234)) })
	clustertest.Wait(t, "the plan to be observed", func() error {
		if br := s.release(); br.Status.ObservedGeneration != br.Generation {
			return fmt.Errorf("generation %d of %d", br.Status.ObservedGeneration, br.Generation)
		}
		return nil
	})
	if n := q.of(http.MethodGet, "/batchreleases/web"); n > 0 {
		t.Errorf("it is read %d times", n)
	}
}
