package rollout_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// refusal is a policy of a namespace that refuses updates of a resource, and its binding. The
// arguments are the namespace, a name, the resource, what passes, and a message.
const refusal = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: %[1]s.%[2]s.example.org
spec:
  matchConstraints:
    namespaceSelector:
      matchLabels: {kubernetes.io/metadata.name: %[1]s}
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], operations: [UPDATE], resources: [%[3]s]}
  validations:
  - expression: %[4]q
    message: %[5]q
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: %[1]s.%[2]s.example.org
spec:
  policyName: %[1]s.%[2]s.example.org
  validationActions: [Deny]
`

// refuse installs the policy, and waits until the API server refuses what is tried.
func refuse(s *env, name, resource, passes, message string, try func() error) (remove func()) {
	s.Helper()
	manifest := fmt.Sprintf(refusal, s.ns, name, resource, passes, message)
	if out, err := s.c.KubectlWith(s, manifest, "apply", "--server-side", "-f", "-"); err != nil {
		s.Fatalf("installing the policy: %v: %s", err, out)
	}
	clustertest.Wait(s, "the policy to act", func() error {
		if err := try(); err == nil || !strings.Contains(err.Error(), message) {
			return fmt.Errorf("what it is to refuse: %w", err)
		}
		return nil
	})
	uninstall := s.without(manifest)
	return func() {
		s.Helper()
		uninstall()
		clustertest.Wait(s, "the policy to be gone", try)
	}
}

// refuseGrowth refuses more pods of a version.
func refuseGrowth(s *env, tag, except string) (remove func()) {
	s.Helper()
	passes := fmt.Sprintf("!object.spec.template.spec.containers[0].image.endsWith(':%s') || "+
		"object.spec.replicas <= oldObject.spec.replicas%s", tag, except)
	return refuse(s, "growth", "replicasets", passes, tag+" is not signed", func() error {
		larger := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":99}}`))
		return s.c.Client.Patch(s.Context(), s.set(tag), larger, client.DryRunAll)
	})
}

// available waits until all pods that are to run are available.
func available(s *env, n int32) {
	s.Helper()
	clustertest.Wait(s, fmt.Sprintf("%d available pods", n), func() error {
		if st := s.deployment("web").Status; st.AvailableReplicas != n || st.Replicas != n {
			return fmt.Errorf("%d of %d are available", st.AvailableReplicas, st.Replicas)
		}
		return nil
	})
}

// bound sets maxSurge and maxUnavailable.
func bound(s *env, surge, unavailable int) {
	s.Helper()
	bounds := fmt.Appendf(nil, `{"spec":{"strategy":{"rollingUpdate":{"maxSurge":%d,"maxUnavailable":%d}}}}`, surge, unavailable)
	s.must(s.c.Client.Patch(s.Context(), s.deployment("web"), client.RawPatch(types.MergePatchType, bounds)))
}

// A policy refuses the growth of the update revision at a gate. The stable revision takes
// what an autoscaler adds, and keeps it: no pod goes to make room for one that may not
// come. Both share as the step says once the policy is gone, and a revert passes before.
func TestGrowthRefused(t *testing.T) {
	t.Parallel()
	for name, bounds := range map[string]struct{ surge, unavailable int }{
		"surge":    {2, 1},
		"no surge": {0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			startControllerIn(t, s.c, s.ns)
			s.install(8)
			bound(s, bounds.surge, bounds.unavailable)
			s.plan("50%", "100%")
			s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
			s.bring("v2")
			s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 4, "v2": 4})
			remove := refuseGrowth(s, "v2", "")
			for _, scale := range []struct{ n, v1, v2 int32 }{{20, 16, 4}, {12, 8, 4}} {
				s.kubectl("-n", s.ns, "scale", "deployment/web", fmt.Sprintf("--replicas=%d", scale.n))
				s.waitFor(v1alpha1.ReasonWriteRefused, 0, map[string]int32{"v1": scale.v1, "v2": scale.v2})
				available(s, scale.n)
				clustertest.Wait(s, "the refusal", func() error {
					if br := s.release(); !stalled(br) || !strings.Contains(br.Status.Message, "v2 is not signed") {
						return fmt.Errorf("stalled=%t: %s", stalled(br), br.Status.Message)
					}
					return nil
				})
				before := map[string]int64{"v1": s.set("v1").Generation, "v2": s.set("v2").Generation}
				for i := range 5 {
					s.kubectl("-n", s.ns, "annotate", "--overwrite", "batchrelease/web", fmt.Sprintf("look=%d", i))
					s.disturb()
				}
				for tag, generation := range before {
					if now := s.set(tag).Generation; now != generation {
						t.Errorf("at %d pods %s is written %d times, and nothing has changed", scale.n, tag, now-generation)
					}
				}
			}
			generation := s.set("v1").Generation
			s.edit(func(spec *v1alpha1.BatchReleaseSpec) { spec.Paused = true })
			s.waitFor(v1alpha1.ReasonReleasePaused, 0, map[string]int32{"v1": 8, "v2": 4})
			s.edit(func(spec *v1alpha1.BatchReleaseSpec) { spec.Paused = false })
			s.waitFor(v1alpha1.ReasonWriteRefused, 0, map[string]int32{"v1": 8, "v2": 4})
			if now := s.set("v1").Generation; now != generation {
				t.Errorf("v1 is written %d times after a pause", now-generation)
			}
			if name == "surge" {
				s.bring("v1")
				s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v1": 12})
				return
			}
			remove()
			s.kubectl("-n", s.ns, "annotate", "--overwrite", "batchrelease/web", "look=again")
			s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 6, "v2": 6})
			s.approve(0)
			s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v2": 12})
		})
	}
}

// The policy exempts dry runs, as webhooks do, and without surge the stable revision makes room
// before the growth is refused. It does so once, and not again at each change.
func TestGrowthRefused_NotInDryRuns(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	startControllerIn(t, s.c, s.ns)
	s.install(8)
	bound(s, 0, 2)
	s.plan("50%", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 4, "v2": 4})
	remove := refuseGrowth(s, "v2", " || has(request.dryRun) && request.dryRun && object.spec.replicas != 99")
	began := time.Now()
	s.approve(0)
	s.waitFor(v1alpha1.ReasonWriteRefused, 1, map[string]int32{"v1": 4, "v2": 4})
	available(s, 8)
	generation := s.set("v1").Generation
	for range 4 {
		s.disturb()
		s.waitFor(v1alpha1.ReasonWriteRefused, 1, map[string]int32{"v1": 4, "v2": 4})
		available(s, 8)
	}
	// A further try is due a minute after the first, and it writes twice.
	if writes, tries := s.set("v1").Generation-generation, int64(time.Since(began)/time.Minute); writes > 2*tries {
		t.Errorf("v1 is written %d times in %s", writes, time.Since(began))
	}
	remove()
	s.kubectl("-n", s.ns, "annotate", "--overwrite", "batchrelease/web", "look=again")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v2": 8})
}
