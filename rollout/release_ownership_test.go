package rollout_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
	"github.com/tranche-dev/tranche/rollout/managedfields"
)

// While a plan governs, a server-side apply of another manager conflicts with
// tranche-rollout. Once no plan does and the ownership is released, it passes.
func TestReleaseOwnership(t *testing.T) {
	t.Parallel()
	const spec = `{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":3}},` +
		`"template":{"spec":{"containers":[{"name":"web","image":"registry.example.org/web:v3"}]}}}`
	s := atGate(t, 2)
	s.finish(2)
	out, err := s.apply("another", spec)
	if err == nil || !strings.Contains(out, `conflicts with "`+v1alpha1.ManagerRollout+`"`) {
		t.Errorf("server-side apply while a plan governs: %v: %s", err, out)
	}
	s.unplan()
	key := types.NamespacedName{Namespace: s.ns, Name: "web"}
	release := func() error { return managedfields.Release(t.Context(), s.c.Client, s.c.Client, key) }
	clustertest.Wait(t, "the ownership to be released", release)
	after := s.deployment("web")
	for _, e := range after.ManagedFields {
		if e.Manager == v1alpha1.ManagerRollout {
			t.Errorf("%s still owns %s", e.Manager, e.FieldsV1)
		}
	}
	if len(after.ManagedFields) == 0 {
		t.Error("the entries of other managers are gone")
	}
	if image := after.Spec.Template.Spec.Containers[0].Image; !strings.HasSuffix(image, ":v2") {
		t.Errorf("image %s", image)
	}
	s.must(release())
	if now := s.deployment("web"); now.Generation != after.Generation {
		t.Errorf("generation %d, then %d", after.Generation, now.Generation)
	}
	if out, err := s.apply("another", spec); err != nil {
		t.Errorf("server-side apply once no plan governs: %v: %s", err, out)
	}
	s.rolled("web", 2)
	s.become(map[string]int32{"v3": 2})
	s.must(managedfields.Release(t.Context(), s.c.Client, s.c.Client, types.NamespacedName{Namespace: s.ns, Name: "gone"}))
}

// If gitsync has applied the Deployment, it gets the fields: its next apply removes the
// fields that the manifest is without.
func TestReleaseOwnership_ToGitSync(t *testing.T) {
	t.Parallel()
	s := atGate(t, 2, func(d *appsv1.Deployment) {
		d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt32(3))}
	})
	s.finish(2)
	s.serverSideApply(v1alpha1.ManagerGitSync, `{"revisionHistoryLimit":7}`)
	s.unplan()
	clustertest.Wait(t, "the ownership to be released", func() error {
		return managedfields.Release(t.Context(), s.c.Client, s.c.Client, types.NamespacedName{Namespace: s.ns, Name: "web"})
	})
	if n := s.deployment("web").Spec.Strategy.RollingUpdate.MaxSurge.IntValue(); n != 3 {
		t.Errorf("maxSurge %d", n)
	}
	if out, err := s.apply(v1alpha1.ManagerGitSync, `{"revisionHistoryLimit":7,"strategy":{"type":"RollingUpdate"},"template":{"spec":{"containers":[{"name":"web","image":"registry.example.org/web:v2"}]}}}`); err != nil {
		t.Errorf("server-side apply of gitsync: %v: %s", err, out)
	}
	if surge := s.deployment("web").Spec.Strategy.RollingUpdate.MaxSurge.String(); surge != "25%" {
		t.Errorf("maxSurge %s, want the default", surge)
	}
}

// A plan that is deleted leaves no entry of tranche-rollout behind: not on the
// Deployment, and not on the ReplicaSets that it made or resized.
func TestPlanDeletedLeavesNoOwnership(t *testing.T) {
	t.Parallel()
	s := atGate(t, 4)
	s.finish(4)
	generations := map[string]int64{}
	for _, rs := range s.sets() {
		generations[rs.Name] = rs.Generation
		if !owned(&rs) {
			t.Errorf("%s owns nothing of ReplicaSet %s", v1alpha1.ManagerRollout, rs.Name)
		}
	}
	s.unplan()
	clustertest.Wait(t, "no entry of "+v1alpha1.ManagerRollout, func() error {
		if owned(s.deployment("web")) {
			return errors.New("it owns fields of the Deployment")
		}
		for _, rs := range s.sets() {
			if owned(&rs) {
				return fmt.Errorf("it owns fields of ReplicaSet %s", rs.Name)
			}
		}
		return nil
	})
	for _, rs := range s.sets() {
		if rs.Generation != generations[rs.Name] {
			t.Errorf("ReplicaSet %s: generation %d, then %d", rs.Name, generations[rs.Name], rs.Generation)
		}
	}
	s.untouched()
}

// owned reports whether tranche-rollout has an entry in the managed fields.
func owned(o client.Object) bool {
	return slices.ContainsFunc(o.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return e.Manager == v1alpha1.ManagerRollout })
}
