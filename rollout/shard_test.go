package rollout_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout"
)

// startShard runs a controller for the releases that a selector matches.
func startShard(s *env, selector string) (stop func()) {
	s.Helper()
	parsed, err := labels.Parse(selector)
	s.must(err)
	return startReconciler(s.T, s.c, s.ns, rollout.Options{Concurrent: 50, Selector: parsed}, func(*ctrl.Options) {})
}

// A plan is deleted in the middle of a release while its own controller does not run. That of
// another selector leaves the Deployment held, as if it ran alone. The release has had that one
// for its controller before.
func TestDeletedPlan_OfAnotherSelector(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	startShard(s, "!shard")
	stop := startShard(s, "shard=a")
	s.toGate(4)
	s.kubectl("-n", s.ns, "label", "batchrelease/web", "shard=a")
	s.edit(func(spec *v1alpha1.BatchReleaseSpec) { spec.Paused = true }) // the status says so of the controller that it has now
	s.waitFor(v1alpha1.ReasonReleasePaused, 0, map[string]int32{"v1": 3, "v2": 1})
	stop()
	s.must(s.c.Client.Delete(s.Context(), s.release()))
	s.create("later", 1)
	s.must(s.c.Client.Create(s.Context(), &v1alpha1.BatchRelease{
		ObjectMeta: metav1.ObjectMeta{Name: "later", Namespace: s.ns},
		Spec: v1alpha1.BatchReleaseSpec{
			WorkloadRef: v1alpha1.WorkloadReference{Kind: "Deployment", Name: "later"},
			Template:    ptr.To(template("later", "v1")),
			Strategy:    v1alpha1.BatchStrategy{Steps: []v1alpha1.Step{{Replicas: intstr.FromString("100%")}}},
		},
	}))
	s.completed("later")                           // by the controller that is left, which has seen the deletion before
	s.stay(map[string]int32{"v1": 3 + 1, "v2": 1}) // one is of the other Deployment

	startShard(s, "shard=a")
	s.become(map[string]int32{"v1": 1, "v2": 4})
	s.rolled("web", 4)
}
