package rollout_test

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// isUnwritten fails if the controller has written the Deployment.
func isUnwritten(s *env) {
	s.Helper()
	ours := func(e metav1.ManagedFieldsEntry) bool { return e.Manager == v1alpha1.ManagerRollout }
	if d := s.deployment("web"); slices.ContainsFunc(d.ManagedFields, ours) {
		s.Errorf("%s has written the Deployment: %v", v1alpha1.ManagerRollout, d.ManagedFields)
	}
}

// An administrator pauses a Deployment whose BatchRelease has no template and no strategy.
// The pause stays, whatever is written besides. The status says that the rollout waits for its
// end, and follows the rollout after it.
func TestNativePauseWithoutTemplate(t *testing.T) {
	t.Parallel()
	s, _ := newEnvWithController(t)
	s.install(4)
	s.plan("1", "100%")
	s.edit(func(spec *v1alpha1.BatchReleaseSpec) { spec.Template, spec.Commit = nil, "" })
	s.waitFor(v1alpha1.ReasonTemplateMissing, 1, map[string]int32{"v1": 4})

	s.kubectl("-n", s.ns, "rollout", "pause", "deployment/web")
	s.nativeHasSeen("web")
	s.deadline(500) // one more sync
	s.waitFor(v1alpha1.ReasonTemplateMissing, 1, map[string]int32{"v1": 4})
	s.kubectl("-n", s.ns, "set", "image", "deployment/web", "web=registry.example.org/web:v2")
	s.waitFor(v1alpha1.ReasonNativeRollout, 1, map[string]int32{"v1": 4})
	s.deadline(501)
	s.waitFor(v1alpha1.ReasonNativeRollout, 1, map[string]int32{"v1": 4})
	if m := s.release().Status.Message; !strings.Contains(m, "the Deployment is paused") {
		t.Errorf("message %q", m)
	}
	if d := s.deployment("web"); !d.Spec.Paused {
		t.Error("it is not paused any more")
	}
	isUnwritten(s)

	s.kubectl("-n", s.ns, "rollout", "resume", "deployment/web")
	s.rolled("web", 4)
	s.waitFor(v1alpha1.ReasonTemplateMissing, 1, map[string]int32{"v2": 4})
	isUnwritten(s)
}
