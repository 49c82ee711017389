package position

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// keptTimes is how many steps of a release have times. Edits of the plan may add to its steps.
const keptTimes = 30

// TimeStep notes when the present step had its pods, and that its gate opens now. A release that
// ends opens no gate. It ends at one, or its pods were under way and nothing is noted.
func TimeStep(s *v1alpha1.BatchReleaseStatus, now *metav1.Time, opens bool) {
	times := v1alpha1.StepTimes{Step: s.CurrentStepIndex, AvailableTime: *now}
	switch {
	case opens:
		times.OpenTime = now
	case s.CurrentStepState != v1alpha1.StepBlocking:
		return
	}
	if s.StepStateTime != nil && s.CurrentStepState != v1alpha1.StepUpgrade { // else the gate opens with the pods
		times.AvailableTime = *s.StepStateTime
	}
	s.StepTimes = append(slices.Clone(s.StepTimes), times)
	s.StepTimes = s.StepTimes[max(0, len(s.StepTimes)-keptTimes):]
}
