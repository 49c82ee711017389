package rollout_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout"
)

// account makes a service account with a role of the namespace, and returns
// its user name.
func (s *env) account(name string, role ...string) string {
	s.Helper()
	s.kubectl("create", "serviceaccount", name, "-n", s.ns)
	s.kubectl(append([]string{"create", "rolebinding", name, "-n", s.ns, "--serviceaccount=" + s.ns + ":" + name}, role...)...)
	return "system:serviceaccount:" + s.ns + ":" + name
}

// A release is written as the account that it names, or as the default one, and never as
// the controller. A user who may write BatchReleases but not Deployments may say how a
// release goes on. Such a user may not say what is released, of what, and as whom.
func TestReleaseAsAnAccount(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	var hands sync.Map // the users that write to a Deployment or ReplicaSet, with what
	startReconciler(t, s.c, s.ns, rollout.Options{DefaultServiceAccount: "nobody"}, func(*ctrl.Options) {}, func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodGet && !r.URL.Query().Has("dryRun") && (strings.Contains(r.URL.Path, "/deployments/") || strings.Contains(r.URL.Path, "/replicasets")) {
				hands.Store(r.Header.Get("Impersonate-User"), r.Method+" "+r.URL.Path)
			}
			return next.RoundTrip(r)
		})
	})
	tenant := s.account("tenant", "--clusterrole=edit")
	s.kubectl("create", "role", "releases", "-n", s.ns, "--resource=batchreleases", "--verb=get,create,patch,delete")
	helper := s.account("helper", "--role=releases")
	s.install(2)
	s.plan("1", "100%")
	s.bring("v2")
	for _, account := range []string{"", "helper"} {
		s.edit(func(spec *v1alpha1.BatchReleaseSpec) { spec.ServiceAccountName = account })
		if account == "" {
			account = "nobody"
		}
		s.waitFor(v1alpha1.ReasonTemplateRefused, 0, map[string]int32{"v1": 2})
		if m := s.release().Status.Message; !strings.Contains(m, `"system:serviceaccount:`+s.ns+`:`+account+`" cannot patch resource "deployments"`) {
			t.Errorf("message %q", m)
		}
		s.untouched()
	}
	s.edit(func(spec *v1alpha1.BatchReleaseSpec) { spec.ServiceAccountName = "tenant" })
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 1, "v2": 1})

	another := s.release()
	another.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("BatchRelease"))
	another.Name, another.ResourceVersion, another.UID, another.ManagedFields = "another", "", "", nil
	manifest, err := json.Marshal(another)
	s.must(err)
	const refused = "may not patch Deployment"
	for _, tc := range []struct{ why, refusal, command string }{
		{"the tenant's account would write it", refused, `patch br/web --type=merge -p {"spec":{"template":{"spec":{"hostNetwork":true}}}}`},
		{"the tenant's account would write it", refused, `patch br/web --type=merge -p {"spec":{"deploymentStrategy":{"type":"Recreate"}}}`},
		{"it may be another account that has more rights", refused, `patch br/web --type=merge -p {"spec":{"serviceAccountName":null}}`},
		{"it may be another account that has more rights", refused, `patch br/web --type=merge -p {"spec":{"serviceAccountName":"default"}}`},
		{"it would take the place of the one that is there", refused, `create -f -`},
		{"that is how a release goes on", "", `patch br/web --type=merge -p {"spec":{"paused":true}}`},
		{"that is how a release goes on", "", `patch br/web --type=merge -p {"spec":{"paused":false,"strategy":{"progressDeadlineSeconds":500}}}`},
		{"it says nothing of what is released", "", `annotate br/web note=hello`},
	} {
		out, err := s.c.KubectlWith(t, string(manifest), append([]string{"-n", s.ns, "--as=" + helper}, strings.Fields(tc.command)...)...)
		if (err == nil) != (tc.refusal == "") || !strings.Contains(out, tc.refusal) {
			t.Errorf("kubectl %s: %s: want %q, got %v: %s", tc.command, tc.why, tc.refusal, err, out)
		}
	}
	s.approve(0)
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v2": 2})
	if _, ok := hands.Load(tenant); !ok {
		t.Error("nothing is written as the account")
	}
	hands.Range(func(user, write any) bool {
		if user != tenant {
			t.Errorf("%s is written as %s", write, user)
		}
		return true
	})
}

// A tenant with the ClusterRole edit may not write deployments/status. A hash
// collision is counted all the same.
func TestCollisionUnderATenant(t *testing.T) {
	t.Parallel()
	s, _ := newEnvWithController(t)
	s.account("tenant", "--clusterrole=edit")
	s.install(2)
	s.collide()
	s.plan("1", "100%")
	s.edit(func(spec *v1alpha1.BatchReleaseSpec) { spec.ServiceAccountName = "tenant" })
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 1, "v2": 1})
	if n := ptr.Deref(s.deployment("web").Status.CollisionCount, 0); n != 1 {
		t.Errorf("collisionCount %d", n)
	}
	s.finish(2)
}
