package gitsync_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// mutateDeployments installs a mutating policy for updates of the Deployments of the
// namespace, and waits until the API server acts by it. The function that it returns
// takes the policy away.
func (s *env) mutateDeployments(expression string) (remove func()) {
	s.Helper()
	manifest := clustertest.Mutation{Resources: "deployments", Operations: "UPDATE", Expression: expression}.Manifest(s.c, s.ns)
	probe := strings.ReplaceAll(web("v1"), "web", "probe") + "  paused: true\n"
	if out, err := s.c.KubectlWith(s, probe, "create", "-n", s.ns, "-f", "-"); err != nil {
		s.Fatalf("making the probe: %v: %s", err, out)
	}
	if out, err := s.c.KubectlWith(s, manifest, "apply", "--server-side", "-f", "-"); err != nil {
		s.Fatalf("installing the policy: %v: %s", err, out)
	}
	acts := func(want bool) {
		s.Helper()
		clustertest.Wait(s, fmt.Sprintf("the policy to act: %t", want), func() error {
			d := get(s, "probe", &appsv1.Deployment{})
			d.Annotations = map[string]string{"tried": d.ResourceVersion}
			d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
			if err := s.c.Client.Update(s.Context(), d); err != nil {
				return fmt.Errorf("writing the probe: %w", err)
			}
			if acts := d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType; acts != want {
				return fmt.Errorf("it acts: %t", acts)
			}
			return nil
		})
	}
	acts(true)
	takeAway := sync.OnceFunc(func() {
		s.Helper()
		if out, err := s.c.KubectlWith(s, manifest, "delete", "-f", "-"); err != nil {
			s.Errorf("deleting the policy: %v: %s", err, out)
		}
	})
	s.Cleanup(takeAway)
	return func() {
		takeAway()
		acts(false)
	}
}

// In the middle of a release comes a mutating policy. It would take a part of the hold
// away in the next apply of the GitSource. That apply is refused, with or without a
// commit, no pod moves, and the message names the cause. Without the policy the release
// goes on.
func TestHoldUnderAMutatingPolicy(t *testing.T) {
	t.Parallel()
	const rolling = `JSONPatch{op: "add", path: "/spec/strategy", value: Object.spec.strategy{type: "RollingUpdate", rollingUpdate: Object.spec.strategy.rollingUpdate{maxSurge: 1, maxUnavailable: 1}}}`
	for name, expression := range map[string]string{
		"not paused": `[JSONPatch{op: "add", path: "/spec/paused", value: false}, ` + rolling + `]`,
		"rolling":    `[` + rolling + `]`,
		"no label":   `[JSONPatch{op: "replace", path: "/metadata/labels", value: {"app": "web"}}, ` + rolling + `]`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t, andRollout)
			s.applied2(s.push(map[string]string{"deploy/web.yaml": sizedWeb(4, "v1"), "deploy/release.yaml": planOf("web", "1", "100%")}))
			s.isAt("web", "ReleaseCompleted", 1)
			r := s.recordSizes("v2")
			s.push(map[string]string{"deploy/web.yaml": sizedWeb(4, "v2")})
			s.isAt("web", "WaitingForApproval", 0)

			remove := s.mutateDeployments(expression)
			s.lookNow()
			tip := s.push(map[string]string{"deploy/web.yaml": sizedWeb(4, "v2", "team: shop", "team: other")})
			if message := s.refused(tip, "DryRunFailed"); !strings.Contains(message, "an admission policy or webhook changes the hold of web: exempt it") {
				t.Error(message)
			}
			if d := s.deployment("web"); !d.Spec.Paused || d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType || d.Labels["tranche.dev/held"] == "" {
				t.Errorf("the hold is %v, paused=%t, %s", d.Labels, d.Spec.Paused, d.Spec.Strategy.Type)
			}
			r.atMost(1)
			var old appsv1.ReplicaSetList
			s.must(s.c.Client.List(t.Context(), &old, client.InNamespace(s.ns), client.MatchingLabels{"app": "web"}))
			for _, rs := range old.Items {
				if strings.HasSuffix(rs.Spec.Template.Spec.Containers[0].Image, ":v1") && *rs.Spec.Replicas > 4 {
					t.Errorf("%d pods are to run v1", *rs.Spec.Replicas)
				}
			}

			remove()
			s.lookNow()
			s.applied(tip)
			s.isAt("web", "WaitingForApproval", 0)
			r.atMost(1)
			s.approve("web")
			s.isAt("web", "ReleaseCompleted", 1)
		})
	}
}

// A release takes the hold of a Deployment between the read and the write of a sync that
// applies it plainly. The policy refuses that write. The sync reads again: the status
// names the hand-back that it waits for, and blames no policy and no file.
func TestHeldDuringAnApply(t *testing.T) {
	t.Parallel()
	for name, dryRun := range map[string]bool{"the dry run": true, "the apply": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newIdleEnv(t)
			patch := func(spec string) {
				d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "web"}}
				if err := s.c.Client.Patch(t.Context(), d, client.RawPatch(types.MergePatchType, []byte(spec)), client.FieldOwner("tranche-rollout")); err != nil {
					t.Error(err)
				}
			}
			var holds atomic.Bool
			config := rest.CopyConfig(s.c.Controller)
			config.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(r *http.Request) (*http.Response, error) {
					if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/deployments/web") && r.URL.Query().Has("dryRun") == dryRun && holds.CompareAndSwap(true, false) {
						patch(`{"metadata":{"labels":{"tranche.dev/held":"web"}},"spec":{"paused":true,"strategy":{"type":"Recreate","rollingUpdate":null}}}`)
					}
					return next.RoundTrip(r)
				})
			})
			t.Cleanup(s.startControllerWith(config, gitsyncOnly))
			s.source()
			s.applied(s.push(map[string]string{"deploy/web.yaml": web("v1")}))
			holds.Store(true)
			tip := s.push(map[string]string{"deploy/web.yaml": web("v2")})
			clustertest.Wait(t, "the source to wait for the hand-back", func() error {
				if m := said(s.gs()); holds.Load() || !strings.Contains(m, "Ready=False WaitingForHandBack") {
					return fmt.Errorf("%s", m)
				}
				return nil
			})
			patch(`{"metadata":{"labels":{"tranche.dev/held":null}},"spec":{"paused":false,"strategy":{"type":"RollingUpdate"}}}`)
			s.applied(tip)
			for _, reason := range []string{"DryRunFailed", "ApplyFailed"} {
				if notes := s.events(reason); len(notes) > 0 {
					t.Errorf("%s: %q", reason, notes)
				}
			}
		})
	}
}

// labelling is a policy that labels the pods of all Deployments.
const labelling = `[JSONPatch{op: "add", path: "/spec/template/metadata/labels/injected", value: "yes"}, ` + probing

// probing ends the patch of a policy. It changes the probe's strategy.
const probing = `JSONPatch{op: "add", path: "/spec/strategy", value: ` +
	`object.metadata.name == "probe" ? dyn({"type": "RollingUpdate"}) : dyn(object.spec.strategy)}]`

// A policy that comes in the middle of a release changes each write of the held Deployment. So
// each commit is refused, and a revert counts all the same.
func TestRevertUnderAMutatingPolicy(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	s.applied2(s.push(map[string]string{"deploy/web.yaml": sizedWeb(4, "v1"), "deploy/release.yaml": planOf("web", "1", "100%")}))
	s.isAt("web", "ReleaseCompleted", 1)
	s.push(map[string]string{"deploy/web.yaml": sizedWeb(4, "v2")})
	s.isAt("web", "WaitingForApproval", 0)
	s.mutateDeployments(labelling)
	s.refused(s.push(map[string]string{"deploy/web.yaml": sizedWeb(4, "v3")}), "DryRunFailed")
	s.runs("web", map[string]int32{"v1": 3, "v2": 1})
	s.push(map[string]string{"deploy/web.yaml": sizedWeb(4, "v1")})
	s.runs("web", map[string]int32{"v1": 4})
}

// Between two releases, a GitSource writes a Deployment without its pod template. A policy that
// changes the template in that write would have all pods replaced at once.
func TestIdleUnderAMutatingPolicy(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	s.applied2(s.push(map[string]string{"deploy/web.yaml": sizedWeb(4, "v1"), "deploy/release.yaml": planOf("web", "1", "100%")}))
	s.isAt("web", "ReleaseCompleted", 1)
	s.mutateDeployments(labelling)
	labelled := s.push(map[string]string{"deploy/web.yaml": sizedWeb(4, "v1", "team: shop", "team: other")})
	if m := s.refused(labelled, "DryRunFailed"); !strings.Contains(m, "changes spec.template in this write") {
		t.Error(m)
	}
	ofPolicy(s, 0)
	s.applied(s.push(map[string]string{"deploy/web.yaml": sizedWeb(4, "v2")}))
	s.isAt("web", "WaitingForApproval", 0)
	s.runs("web", map[string]int32{"v1": 3, "v2": 1})
	ofPolicy(s, 1)
	s.approve("web")
	s.isAt("web", "ReleaseCompleted", 1)
	s.applied(s.push(map[string]string{"deploy/web.yaml": sizedWeb(4, "v2", "team: shop", "team: other")}))
	s.runs("web", map[string]int32{"v2": 4})
	if d := s.deployment("web"); d.Labels["team"] != "other" {
		t.Errorf("it is labelled %v", d.Labels)
	}
}

// ofPolicy makes sure that so many pods of web are of a template that the policy has changed.
func ofPolicy(s *env, want int32) {
	s.Helper()
	var sets appsv1.ReplicaSetList
	s.must(s.c.Client.List(s.Context(), &sets, client.InNamespace(s.ns), client.MatchingLabels{"app": "web", "injected": "yes"}))
	var got int32
	for i := range sets.Items {
		got += *sets.Items[i].Spec.Replicas
	}
	if got != want {
		s.Errorf("%d pods of web are as the policy changes them, want %d", got, want)
	}
}

// A policy changes the size in each apply. InSync says so, until the policy is gone.
func TestResizedByAPolicy(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	s.applied2(s.push(map[string]string{"deploy/web.yaml": sizedWeb(4, "v1"), "deploy/release.yaml": planOf("web", "1", "100%"),
		"deploy/api.yaml": strings.ReplaceAll(sizedWeb(2, "v1"), "web", "api")}))
	s.isAt("web", "ReleaseCompleted", 1)
	s.says("True InSync")
	remove := s.mutateDeployments(`[JSONPatch{op: "add", path: "/spec/replicas", value: 6}, ` + probing)
	web := sizedWeb(3, "v1")
	s.applied(s.push(map[string]string{"deploy/web.yaml": web, "deploy/api.yaml": strings.ReplaceAll(web, "web", "api")}))
	sized := func(want int32) {
		t.Helper()
		for _, name := range []string{"web", "api"} {
			if got := *s.deployment(name).Spec.Replicas; got != want {
				t.Errorf("%s has %d replicas, want %d", name, got, want)
			}
		}
	}
	for range 2 {
		s.says("False FieldConflict")
		sized(6)
		for _, name := range []string{"web", "api"} {
			if m, want := s.inSync().Message, "Deployment "+s.ns+"/"+name+": spec.replicas is 6, and 3 in Git"; !strings.Contains(m, want) {
				t.Errorf("%q is not in %s", want, m)
			}
		}
		s.lookNow()
	}
	remove()
	s.lookNow()
	s.says("True InSync")
	sized(3)
}
