package rollout_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/rollout/account"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// The policy of config/policy names the controller's account of config/rbac, which
// may read the policy.
func TestMayHandBack_Live(t *testing.T) {
	t.Parallel()
	c := clustertest.Shared(t)
	ask := func(as rest.ImpersonationConfig, asAccount bool) error {
		config := rest.CopyConfig(c.Config)
		config.Impersonate = as
		own, err := client.New(config, client.Options{Scheme: c.Scheme})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range []client.Object{&admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}} {
			if err := own.Get(t.Context(), client.ObjectKey{Name: "tranche-held-deployments"}, o); as.UserName != "stranger" && err != nil {
				t.Errorf("%s cannot ask: %v", as.UserName, err)
			}
		}
		refusal, err := account.New(own, own, time.Now).MayHandBack(t.Context(), asAccount)
		return errors.Join(refusal, err)
	}
	if err := ask(c.Controller.Impersonate, false); err != nil {
		t.Errorf("the controller: %v", err)
	}
	admin := rest.ImpersonationConfig{UserName: "root", Groups: []string{"system:masters"}}
	if err := ask(admin, false); err == nil || !strings.Contains(err.Error(), "lets only system:serviceaccount:tranche-system:tranche-controller write held Deployments, and the controller is root") {
		t.Errorf("an admin: %v", err)
	}
	if err := ask(admin, true); err != nil {
		t.Errorf("an admin, as an account: %v", err)
	}
	if err := ask(rest.ImpersonationConfig{UserName: "stranger"}, false); err != nil {
		t.Errorf("a user who may not read the policy: %v", err)
	}
}
