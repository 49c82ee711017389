package engine_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// gateSaid is what a status says of a gate.
type gateSaid struct {
	Step   int32
	State  v1alpha1.StepState
	Reason string
	True   []string // conditions
}

func saidAt(c *cluster) gateSaid {
	s := c.br.Status
	is := gateSaid{Step: s.CurrentStepIndex, State: s.CurrentStepState, Reason: s.Reason}
	for _, condition := range s.Conditions {
		if condition.Status == "True" {
			is.True = append(is.True, condition.Type)
		}
	}
	return is
}

// N grows while a release waits at a gate, and the pods that the step then wants do not come
// yet. The state stays Blocking, and the reason is Upgrading. An approval opens the gate no
// sooner than these pods are available.
func TestGate_GrownDeployment(t *testing.T) {
	blocked := gateSaid{0, v1alpha1.StepBlocking, v1alpha1.ReasonUpgrading, []string{v1alpha1.ConditionReconciling, v1alpha1.ConditionHeld}}
	waits := gateSaid{0, v1alpha1.StepBlocking, v1alpha1.ReasonWaitingForApproval, blocked.True}
	ready := gateSaid{1, v1alpha1.StepCompleted, v1alpha1.ReasonReleaseCompleted, []string{v1alpha1.ConditionReady}}
	for name, tc := range map[string]struct {
		meanwhile []string
		then      gateSaid
		pods      int32 // of v2 then
	}{
		"nothing else happens":      {nil, waits, 10},
		"an approval comes":         {[]string{"approve 0", "run 1m"}, ready, 20},
		"N is as it was":            {[]string{"scale 10", "run 1m"}, waits, 5},
		"the steps are edited":      {[]string{"steps 50% 75% 100%", "run 1m"}, waits, 10},
		"the controller ends":       {[]string{"crash 0", "run 1m"}, waits, 10},
		"another pod is lost again": {[]string{"evict 2", "run 1m"}, waits, 10},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(ten(stepped("50% 100%")))
			for _, m := range []string{"quiet", "bring 2", "quiet"} {
				c.exec(m)
			}
			if diff := cmp.Diff(waits, saidAt(c)); diff != "" {
				t.Fatalf("at its gate (-want +got):\n%s", diff)
			}
			for _, m := range []string{"fate 2 unschedulable", "scale 20", "run 1m"} {
				c.exec(m)
			}
			size, _, available, _, _ := c.podsOf(1)
			if diff := cmp.Diff(blocked, saidAt(c)); diff != "" || size != 10 || available != 5 {
				t.Fatalf("%d pods of v2, %d of them available; want 10 and 5 (-want +got):\n%s", size, available, diff)
			}
			for _, m := range tc.meanwhile {
				c.exec(m)
			}
			if most := c.sizeOf(1); most > 10 || c.br.Status.CurrentStepIndex > 0 {
				t.Errorf("step %d, and %d pods of v2, before those of step 0 are available", c.br.Status.CurrentStepIndex, most)
			}
			c.fates[1] = comes
			for c.changePod("mend", 1) {
			}
			c.exec("quiet")
			if diff := cmp.Diff(tc.then, saidAt(c)); diff != "" || c.sizeOf(1) != tc.pods {
				t.Errorf("%d pods of v2, want %d (-want +got):\n%s", c.sizeOf(1), tc.pods, diff)
			}
		})
	}
}
