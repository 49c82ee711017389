package rollout_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// A finalizer of another controller keeps a plan that was deleted in the middle of a
// release. The Deployment is handed back all the same, an event and a last status say so, and
// nothing else is written to the plan. Another plan then governs the Deployment.
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
	s.hasEvent(v1alpha1.ReasonHandedBack, "the finalizers example.org/hostage keep only the object")
	clustertest.Wait(t, "the records to go", func() error {
		if left := s.records(); len(left) > 0 {
			return fmt.Errorf("%d ControllerRevisions", len(left))
		}
		return nil
	})

	clustertest.Wait(t, "the last status", func() error {
		deleted = s.release()
		if at := deleted.Status; at.Reason != v1alpha1.ReasonHandedBack || at.Phase != "" || at.CurrentStepState != "" || !strings.Contains(at.Message, "example.org/hostage") ||
			at.ObservedGeneration != deleted.Generation || !meta.IsStatusConditionFalse(at.Conditions, v1alpha1.ConditionHeld) {
			return fmt.Errorf("%s: %s; %+v", at.Reason, at.Message, at.Conditions)
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

// A pod that does not end keeps the stable ReplicaSet, which is deleted in the foreground.
// The native controller counts it at its size, and makes no other. A release goes on
// through its gates, with another ReplicaSet of the stable revision. It waits at its gate
// when the old one goes.
func TestDeletedReplicaSet_KeptByAPod(t *testing.T) {
	t.Parallel()
	s, _ := newEnvWithController(t)
	s.install(4)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	old, kept := s.set("v1").Name, s.pods("v1")[0].Name
	s.kubectl("-n", s.ns, "patch", "pod/"+kept, "--type=merge", "-p", `{"metadata":{"finalizers":["example.org/hostage"]}}`)
	s.kubectl("-n", s.ns, "delete", "replicaset/"+old, "--cascade=foreground", "--wait=false")
	s.waitFor(v1alpha1.ReasonPodsUnavailable, 1, map[string]int32{"v1": 4})
	if m := s.release().Status.Message; !strings.Contains(m, "ReplicaSet "+old+" is being deleted and kept by finalizers foregroundDeletion") {
		t.Errorf("the status says: %s", m)
	}

	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
	clustertest.Wait(t, "pods of another ReplicaSet of v1", func() error {
		if n := len(s.pods("v1")); n != 3 {
			return fmt.Errorf("%d pods", n)
		}
		return nil
	})
	s.kubectl("-n", s.ns, "patch", "pod/"+kept, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	clustertest.Wait(t, "the old ReplicaSet to go", func() error {
		for _, rs := range s.sets() {
			if rs.Name == old {
				return fmt.Errorf("finalizers %v", rs.Finalizers)
			}
		}
		return nil
	})
	s.stay(map[string]int32{"v1": 3, "v2": 1})
	s.approve(0)
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v2": 4})
	s.rolled("web", 4)
	s.untouched()
}

// The Deployment of such a plan is gone, too: the last status has no gate that waits.
func TestDeletedPlan_DeploymentGone(t *testing.T) {
	t.Parallel()
	s, _ := atGateOf(t, 2)
	s.kubectl("-n", s.ns, "patch", "batchrelease/web", "--type=merge", "-p", `{"metadata":{"finalizers":["example.org/hostage"]}}`)
	s.kubectl("-n", s.ns, "delete", "deployment/web")
	s.must(s.c.Client.Delete(s.Context(), s.release()))
	clustertest.Wait(t, "the last status", func() error {
		if at := s.release().Status; at.Reason != v1alpha1.ReasonHandedBack || at.Phase != "" || at.CurrentStepState != "" || !strings.Contains(at.Message, "Deployment web is gone") {
			return fmt.Errorf("%s: %s", at.Reason, at.Message)
		}
		return nil
	})
	s.kubectl("-n", s.ns, "patch", "batchrelease/web", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
}
