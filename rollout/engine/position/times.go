package position

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// keptTimes and keptApprovals are how many a status may have. A plan has at most 30 steps. Edits
// of the plan may add to them, and each edit that raises the present step adds a gate.
const keptTimes, keptApprovals = 30, 30

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

// LeaveGate notes how long the release was at the gate of the present step, where an edit of the
// plan takes it from there.
func LeaveGate(s *v1alpha1.BatchReleaseStatus, now *metav1.Time) {
	if s.CurrentStepState == v1alpha1.StepBlocking {
		TimeStep(s, now, true)
	}
}

// NoteApproval adds an approval of the present step, whose gate opens now. The API server would
// refuse the status with one too many, and the release would stand still. So an older approval
// goes: the first one of a step that has a newer one, or else the first.
func NoteApproval(p *Position, by *v1alpha1.StepApproval, now *metav1.Time) {
	s, steps := &p.Status, p.Steps()
	by.Step, by.Time = s.CurrentStepIndex, *now
	if i := int(s.CurrentStepIndex); i < len(steps) {
		by.Replicas = new(steps[i].Replicas)
		if by.By == v1alpha1.ApprovedByCluster {
			for _, step := range steps[:min(i+2, len(steps))] {
				by.Steps = append(by.Steps, step.Replicas)
			}
		}
	}
	all := append(slices.Clone(s.Approvals), *by)
	for len(all) > keptApprovals {
		i := 0
		for n := range all {
			if slices.ContainsFunc(all[n+1:], func(newer v1alpha1.StepApproval) bool { return newer.Step == all[n].Step }) {
				i = n
				break
			}
		}
		all = slices.Delete(all, i, i+1)
	}
	s.Approvals = all
}
