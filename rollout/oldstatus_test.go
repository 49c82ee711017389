package rollout_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// keepStatus lets the status of all ReplicaSets be as it is now, as it is while the
// ReplicaSet controller is away.
func keepStatus(s *env) (remove func()) {
	s.Helper()
	manifest := fmt.Sprintf(refusal, s.ns, "status", "replicasets/status", "false", "the status is kept")
	if out, err := s.c.KubectlWith(s, manifest, "apply", "--server-side", "-f", "-"); err != nil {
		s.Fatalf("installing the policy: %v: %s", err, out)
	}
	clustertest.Wait(s, "the policy to act", func() error {
		other := client.RawPatch(types.MergePatchType, []byte(`{"status":{"fullyLabeledReplicas":0}}`))
		err := s.c.Client.Status().Patch(s.Context(), s.set("v2"), other, client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "is kept") {
			return fmt.Errorf("a status: %w", err)
		}
		return nil
	})
	return s.without(manifest)
}

// The pods of a gate are lost, and the status of their ReplicaSet does not say so. No gate
// opens by that, and no stable pod goes.
func TestGate_OldStatus(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*env){
		"an approval": func(s *env) { s.approve(0) },
		"a pause": func(s *env) {
			s.edit(func(spec *v1alpha1.BatchReleaseSpec) {
				spec.Strategy.Steps[0].Pause = &v1alpha1.Pause{Duration: metav1.Duration{Duration: time.Second}}
			})
		},
		"an approval in the cluster": func(s *env) {
			s.kubectl("-n", s.ns, "patch", "batchrelease", "web", "--subresource=status", "--type=merge",
				"-p", `{"status":{"currentStepState":"Completed"}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := newEnvWithController(t)
			s.install(4)
			s.plan("50%", "75%", "100%")
			s.waitFor(v1alpha1.ReasonReleaseCompleted, 2, nil)
			s.bring("v2")
			s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 2, "v2": 2})
			remove := keepStatus(s)
			s.setReady("v2", false)
			open(s)
			clustertest.Wait(t, "the gate to ask for the pods", func() error {
				if m := s.release().Status.Message; !strings.Contains(m, "0 of these pods are ready") {
					return fmt.Errorf("%s", m)
				}
				return nil
			})
			s.become(map[string]int32{"v1": 2, "v2": 2})
			remove()
			clustertest.Wait(t, "the loss to be told", func() error {
				if m := s.release().Status.Message; !strings.Contains(m, "0 of 4 pods run") {
					return fmt.Errorf("%s", m)
				}
				return nil
			})
			s.become(map[string]int32{"v1": 2, "v2": 2})
			s.setReady("v2", true)
			s.become(map[string]int32{"v1": 1, "v2": 3})
		})
	}
}
