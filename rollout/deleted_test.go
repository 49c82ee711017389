package rollout_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// A finalizer of another controller keeps a plan that was deleted in the middle of a
// release. The Deployment is handed back all the same, an event says so, and nothing is
// written to the plan any more. Another plan then governs the Deployment.
func TestDeletedPlan_KeptByAFinalizer(t *testing.T) {
	t.Parallel()
	s, _ := atGateOf(t, 2)
	s.kubectl("-n", s.ns, "patch", "batchrelease/web", "--type=merge", "-p", `{"metadata":{"finalizers":["example.org/hostage"]}}`)
	s.must(s.c.Client.Delete(s.Context(), s.release()))
	deleted := s.release()
	if deleted.DeletionTimestamp == nil {
		t.Fatal("the finalizer does not keep it")
	}
	s.become(map[string]int32{"v2": 2})
	s.rolled("web", 2)
	s.untouched()
	s.hasEvent(engine.ReasonHandedBack, "the finalizers example.org/hostage keep only the object")
	clustertest.Wait(t, "the records to go", func() error {
		if left := s.records(); len(left) > 0 {
			return fmt.Errorf("%d ControllerRevisions", len(left))
		}
		return nil
	})

	next := &v1alpha1.BatchRelease{ObjectMeta: metav1.ObjectMeta{Name: "next", Namespace: s.ns}, Spec: deleted.Spec}
	s.must(s.c.Client.Create(s.Context(), next))
	s.completed("next")
	bring := next.DeepCopy()
	s.must(s.c.Client.Get(s.Context(), types.NamespacedName{Namespace: s.ns, Name: "next"}, bring))
	bring.Spec.Template, bring.Spec.Commit = ptr.To(template("web", "v3")), commitOf("v3")
	s.must(s.c.Client.Update(s.Context(), bring))
	s.become(map[string]int32{"v2": 1, "v3": 1})

	if now := s.release(); now.ResourceVersion != deleted.ResourceVersion {
		t.Errorf("the deleted plan was written at %s; status %s", now.ResourceVersion, now.Status.Reason)
	}
	s.kubectl("-n", s.ns, "patch", "batchrelease/web", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	s.stay(map[string]int32{"v2": 1, "v3": 1})
}
