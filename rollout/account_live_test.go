package rollout_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// withToken returns the cluster with a controller that has the token of its account, as
// in a cluster it has. The API server then asks whether that account may impersonate.
func withToken(t *testing.T, c *clustertest.Cluster) *clustertest.Cluster {
	t.Helper()
	_, name, _ := strings.Cut(strings.TrimPrefix(c.Controller.Impersonate.UserName, "system:serviceaccount:"), ":")
	token, err := c.Kubectl(t, "create", "token", name, "-n", "tranche-system")
	if err != nil {
		t.Fatalf("creating a token of the controller's account: %v: %s", err, token)
	}
	with := *c
	with.Controller = rest.AnonymousClientConfig(c.Config)
	with.Controller.BearerToken, with.Controller.QPS = strings.TrimSpace(token), -1
	return &with
}

// The account does not exist, or may write neither Deployments nor any status. The
// controller's own account says so in the status, whenever the account is named. Nothing
// of the release is written.
func TestAccountThatMayNot(t *testing.T) {
	t.Parallel()
	c := withToken(t, clustertest.Shared(t))
	for name, tc := range map[string]struct {
		before bool   // it is named before the first look
		gone   bool   // it was there, and loses its rights in the middle
		name   string // of the account
		says   string // part of the message
	}{
		"from the beginning": {before: true, name: "missing", says: `:missing" cannot patch resource "deployments"`},
		"between releases":   {name: "missing", says: `:missing" cannot patch resource "deployments"`},
		"not a valid name":   {name: "a:b", says: `:a:b`},
		"powerless":          {name: "default", says: `:default" cannot patch resource "deployments"`},
		"gone in the middle": {gone: true, name: "tenant", says: `:tenant" cannot patch resource "replicasets"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := c.Namespace(t)
			s := &env{T: t, c: c, ns: ns, w: c.Watch(t, ns), brought: map[string]int{"v1": 1}}
			startControllerIn(t, c, ns)
			s.c.Guard(t, s.ns)
			s.install(2)
			if tc.gone {
				s.account("tenant", "--clusterrole=edit")
			}
			s.plan("1", "100%")
			if tc.before || tc.gone {
				s.edit(func(spec *v1alpha1.BatchReleaseSpec) { spec.ServiceAccountName = tc.name })
			}
			if !tc.before {
				s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
				s.edit(func(spec *v1alpha1.BatchReleaseSpec) { spec.ServiceAccountName = tc.name })
			}
			s.bring("v2")
			if tc.gone {
				s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 1, "v2": 1})
				s.kubectl("delete", "rolebinding/tenant", "serviceaccount/tenant", "-n", s.ns)
				clustertest.Wait(t, "the right to be gone", func() error {
					as := "--as=system:serviceaccount:" + s.ns + ":tenant"
					if out, err := s.c.Kubectl(t, "auth", "can-i", "patch", "replicasets.apps", "-n", s.ns, as); err == nil {
						return errors.New(out)
					}
					return nil
				})
				s.approve(0)
			}
			clustertest.Wait(t, "the status", func() error {
				br := s.release()
				stalled := meta.IsStatusConditionTrue(br.Status.Conditions, v1alpha1.ConditionStalled)
				if !strings.Contains(br.Status.Message, tc.says) || br.Status.ObservedGeneration != br.Generation || !stalled {
					return fmt.Errorf("Stalled=%t %s: %s", stalled, br.Status.Reason, br.Status.Message)
				}
				return nil
			})
			want := map[string]int32{"v1": 2}
			if tc.gone {
				want = map[string]int32{"v1": 1, "v2": 1}
			}
			if got := s.sizes(); !maps.Equal(got, want) {
				t.Errorf("sizes %v", got)
			}
		})
	}
}
