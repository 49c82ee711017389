package rollout_test

import (
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// I8: with the controller dead nothing changes, and what would end the hold or
// change what is held is refused, to an admin too; what a hold does not concern
// passes.
func TestControllerDead(t *testing.T) {
	s := newShop(t)
	s.c.Guard(t, s.ns)
	stop := startController(t, s.c)
	s.install(10)
	s.plan("20%", "100%")
	s.waitFor(engine.ReasonReleaseCompleted, 1, nil)
	s.bring("v2")
	s.waitFor(engine.ReasonWaitingForApproval, 0, map[string]int32{"v1": 8, "v2": 2})
	stop()
	before := s.deployment("web")
	manifest := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"selector":{"matchLabels":{"app":"web"}},` +
		`"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"web","image":"registry.example.org/web:v9"}]}}}}`
	const outage, hold = "would take all old pods away", "are the controller's until it ends"
	for _, tc := range []struct{ why, refusal, command string }{
		{"it is an outage (H8)", outage, "rollout resume deployment/web"},
		{"the template is the one under release", hold, "set image deployment/web web=registry.example.org/web:v9"},
		{"the template is the one under release", hold, "set env deployment/web A=b"},
		{"the template is the one under release", hold, "apply --server-side --force-conflicts -f -"},
		{"paused and RollingUpdate adds pods (H7)", hold, `patch deployment/web -p {"spec":{"strategy":{"type":"RollingUpdate"}}}`},
		{"a hand-back is the controller's", hold, `patch deployment/web -p {"spec":{"paused":false,"strategy":{"type":"RollingUpdate"}}}`},
		{"without the label the policy would not know a hold", hold, "label deployment/web tranche.dev/held-"},
		{"it changes nothing of the hold", "", "annotate deployment/web note=hello"},
		{"it changes nothing of the hold", "", "label deployment/web team=web"},
		{"it changes nothing of the hold", "", "scale deployment/web --replicas=10"},
		{"it changes nothing of the hold", "", `patch deployment/web -p {"spec":{"minReadySeconds":1}}`},
	} {
		out, err := s.c.KubectlWith(t, manifest, append([]string{"-n", s.ns}, strings.Fields(tc.command)...)...)
		if (err == nil) != (tc.refusal == "") || !strings.Contains(out, tc.refusal) {
			t.Errorf("kubectl %s: %s: want %q, got %v: %s", tc.command, tc.why, tc.refusal, err, out)
		}
	}
	after := s.deployment("web")
	if !engine.Held(after) || after.Spec.Template.Spec.Containers[0].Image != before.Spec.Template.Spec.Containers[0].Image {
		t.Errorf("the hold has changed: %+v", after.Spec)
	}
	startController(t, s.c)
	s.approve(0)
	s.waitFor(engine.ReasonReleaseCompleted, 1, map[string]int32{"v2": 10})
	s.untouched()
}

// A tenant's account writes for the controller under the policy, and not for
// itself.
func TestTenantUnderThePolicy(t *testing.T) {
	s := newShop(t)
	s.c.Guard(t, s.ns)
	startController(t, s.c)
	s.kubectl("create", "serviceaccount", "tenant", "-n", s.ns)
	s.kubectl("create", "rolebinding", "tenant", "-n", s.ns, "--clusterrole=edit", "--serviceaccount="+s.ns+":tenant")
	s.install(4)
	s.plan("1", "100%")
	s.edit(func(spec *v1alpha1.BatchReleaseSpec) { spec.ServiceAccountName = "tenant" })
	s.waitFor(engine.ReasonReleaseCompleted, 1, nil)
	s.bring("v2")
	s.waitFor(engine.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
	out, err := s.c.Kubectl(t, "-n", s.ns, "--as=system:serviceaccount:"+s.ns+":tenant", "set", "image", "deployment/web", "web=registry.example.org/web:v9")
	if err == nil || !strings.Contains(out, "are the controller's until it ends") {
		t.Errorf("kubectl set image by the tenant: %v: %s", err, out)
	}
	s.approve(0)
	s.waitFor(engine.ReasonReleaseCompleted, 1, map[string]int32{"v2": 4})
}
