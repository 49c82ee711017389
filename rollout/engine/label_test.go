package engine

import (
	"testing"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// The label of a hold counts with any value, as in the admission policies.
func TestHeldByKey(t *testing.T) {
	for _, value := range []string{"true", "", "me"} {
		o := at(0, v1alpha1.StepBlocking, 2, steps("20%", "100%")...).observe()
		o.Deployment.Labels = map[string]string{v1alpha1.LabelHeld: value}
		if !Held(o.Deployment) || !NewFacts(&o, epoch).Touched() || Mislabelled(&o) {
			t.Errorf("label %q of a hold: held=%t", value, Held(o.Deployment))
		}
		o.Deployment.Spec.Paused, o.Records = false, nil
		if Held(o.Deployment) || !Mislabelled(&o) {
			t.Errorf("label %q without a hold: held=%t", value, Held(o.Deployment))
		}
	}
}
