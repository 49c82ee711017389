package rollout_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// Under the admission plugin OwnerReferencesPermissionEnforcement the controller's
// role lets a ReplicaSet block the deletion of its Deployment, as the native one
// does. A tenant with the ClusterRole edit has no such right, and releases all the
// same.
func TestOwnerReferencesPermissionEnforcement(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, "--enable-admission-plugins=OwnerReferencesPermissionEnforcement", "--nodes=1")
	if out, err := c.Kubectl(t, "delete", "clusterrolebinding", "tranche-applier"); err != nil { // it has every right
		t.Fatalf("%v: %s", err, out)
	}
	// The other rights that no binding but the controller's own gives it here.
	for _, right := range []string{"get validatingadmissionpolicies/tranche-held-deployments", "get validatingadmissionpolicybindings/tranche-held-deployments"} {
		args := append([]string{"auth", "can-i", "--as=" + c.Controller.Impersonate.UserName}, strings.Fields(right)...)
		clustertest.Wait(t, "the right to "+right, func() error {
			if out, err := c.Kubectl(t, args...); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
	for name, tc := range map[string]struct {
		account string
		blocks  bool
	}{"controller": {"", true}, "tenant": {"tenant", false}} {
		t.Run(name, func(t *testing.T) {
			ns := c.Namespace(t)
			s := &env{T: t, c: c, ns: ns, w: c.Watch(t, ns)}
			startControllerIn(t, c, ns)
			s.install(2)
			s.plan("1", "100%")
			if tc.account != "" {
				s.account(tc.account, "--clusterrole=edit")
				s.edit(func(spec *v1alpha1.BatchReleaseSpec) { spec.ServiceAccountName = tc.account })
			}
			s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
			s.bring("v2")
			s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 1, "v2": 1})
			owner := metav1.GetControllerOf(s.set("v2"))
			if owner == nil || ptr.Deref(owner.BlockOwnerDeletion, false) != tc.blocks {
				t.Errorf("owner %+v, want blockOwnerDeletion=%t", owner, tc.blocks)
			}
			s.finish(2)
		})
	}
}
