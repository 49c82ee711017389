package engine

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// position is a course with the status as the round has it so far. It tells the step that
// the release is at, and what its gates have opened. Its methods read.
type position struct {
	course
	status v1alpha1.BatchReleaseStatus
}

// newPosition returns the position by what is observed. Its course leads nowhere yet.
func newPosition(o *Observed, now time.Time) position {
	return position{
		course: course{facts: newFacts(o, now), spec: &o.Release.Spec},
		status: *o.Release.Status.DeepCopy(),
	}
}

// failed reports whether what Git brings is what was rolled back, and Git has
// said nothing else since.
func (p *position) failed() bool { return hasFailed(&p.course, &p.status) }

// steps of the way: the plan's, or the rollback's.
func (p *position) steps() []v1alpha1.Step {
	if !p.status.RollingBack {
		return p.spec.Strategy.Steps
	}
	return plan.RollbackSteps(&p.spec.Strategy)
}

// lastStep reports whether the release is at the step that ends it.
func (p *position) lastStep() bool {
	return int(p.status.CurrentStepIndex) >= len(p.steps())-1 && !p.capped()
}

// capped reports whether the plan, as edited, lets the step have more than the
// last gate allowed. The step then waits at a gate before that.
//
// The last step is everything, at any N. At 0 replicas, or at 1, a number would allow as
// much, and the release would end past its gates.
func (p *position) capped() bool {
	switch step := int(p.status.CurrentStepIndex); {
	case p.status.RollingBack:
		return false
	case step >= len(p.steps())-1:
		return !p.full()
	default:
		return p.planned(step) > p.allowed()
	}
}

// full reports whether all pods may run the update revision.
func (p *position) full() bool { return slices.Contains(p.opened(), plan.Full) || p.beganFull() }

// beganFull reports whether the release began with all pods, and has them still: then
// it has nothing to ask a gate for, and opens none. A round that has not resolved what it
// leads to does not know.
func (p *position) beganFull() bool {
	return p.status.BeganFull && p.goal != nil && p.replicas > 0 && p.runsAll()
}

// allowed is how many pods of N the last gate of this release has let run the
// update revision (I3).
func (p *position) allowed() int32 {
	if p.status.RollingBack || p.beganFull() {
		return p.replicas
	}
	var most int32
	for _, r := range p.opened() {
		most = max(most, plan.Limit(r, p.replicas))
	}
	return most
}

// opened is what the gates of this release have opened the way to.
func (p *position) opened() []intstr.IntOrString {
	switch {
	case len(p.status.OpenedReplicas) > 0:
		return p.status.OpenedReplicas
	case p.status.CurrentStepReplicas != nil: // a status of an earlier version
		return []intstr.IntOrString{*p.status.CurrentStepReplicas}
	}
	return p.openTo(0)
}

// openTo returns what the steps up to this one allow: the largest number and the
// largest percentage among them.
func (p *position) openTo(step int) []intstr.IntOrString {
	var number, percent *intstr.IntOrString
	for _, s := range p.steps()[:step+1] {
		r := s.Replicas
		value, isPercent, err := plan.ParseReplicas(r)
		if err != nil {
			continue
		}
		largest := &number
		if isPercent {
			largest = &percent
		}
		if *largest != nil {
			if before, _, _ := plan.ParseReplicas(**largest); before >= value {
				continue
			}
		}
		*largest = &r
	}
	var opened []intstr.IntOrString
	for _, r := range []*intstr.IntOrString{number, percent} {
		if r != nil {
			opened = append(opened, *r)
		}
	}
	return opened
}

// planned returns how many pods of N the plan lets run the goal's revision at
// step i.
func (p *position) planned(i int) int32 {
	steps := p.steps()
	return plan.Target(steps, max(0, min(i, len(steps)-1)), p.replicas) // the plan may have become shorter
}

// target returns how many pods of N run the goal's revision when step i is done, and how
// many run others. The goal's are never more than the gates allow.
//
// Before the last step the others keep at least one pod. With only the goal active the
// native controller would bring the goal to a new N by itself. With a surge that pod is
// one above N. Without one the goal gets one less. That is 0 if N is 1: there is nothing
// to split.
func (p *position) target(i int) (goal, others int32) {
	return p.splitAt(i, min(p.planned(i), p.allowed()))
}

// splitAt returns the split of N at step i for a goal of this size.
func (p *position) splitAt(i int, goal int32) (int32, int32) {
	if i >= len(p.steps())-1 && goal == p.replicas && (p.status.RollingBack || p.full()) {
		return goal, 0
	}
	return p.apart(goal)
}

// stopped reports whether the goal must not grow: the plan is paused, or the
// step has missed its deadline.
func (p *position) stopped() bool {
	return p.spec.Paused || p.status.CurrentStepState == v1alpha1.StepUpgrade && !p.status.RollingBack && p.deadline() <= 0
}

// underWay reports whether the status is about the release that the way leads to.
func (p *position) underWay() bool {
	switch p.status.Phase {
	case v1alpha1.PhaseInitial, v1alpha1.PhaseRollingUpdate, v1alpha1.PhaseFinalizing:
		return p.isGoal() && (p.status.RollingBack || p.status.UpdateCommit == p.spec.Commit)
	default:
		return false
	}
}

// isGoal reports whether the status is about the revision that the way leads to:
// by what was sent, since a name may change under it.
func (p *position) isGoal() bool {
	if p.status.UpdateTemplateDigest == "" { // a status of an earlier version
		return p.status.UpdateRevision == p.goal.name
	}
	return p.status.UpdateTemplateDigest == p.goal.id
}

// edited reports whether the plan has changed at the step that the release is at.
func (p *position) edited() bool {
	steps, i := p.steps(), int(p.status.CurrentStepIndex)
	return i < 0 || i >= len(steps) || p.status.CurrentStepReplicas == nil || steps[i].Replicas != *p.status.CurrentStepReplicas
}

// parked reports whether there is nothing to split, so that the Deployment is native and
// at its stable template. That is so at 1 replica without surge. It is also so at 0
// replicas, where a hold would bring all pods up on the update revision afterwards (H4).
// The last step is never parked: it may run everything.
func (p *position) parked() bool {
	goal, _ := p.target(int(p.status.CurrentStepIndex))
	return goal == 0 && !p.lastStep()
}

// firstNotBelow returns the first step whose target is not below what runs.
func (p *position) firstNotBelow(size int32) int {
	last := len(p.steps()) - 1
	for i := range last {
		if goal, _ := p.apart(p.planned(i)); goal >= size {
			return i
		}
	}
	return last
}

// releasing reports whether a status is about a release or rollback under way.
func releasing(s *v1alpha1.BatchReleaseStatus) bool {
	return s.Phase != "" && s.Phase != v1alpha1.PhaseCompleted
}

// namedStable returns the template of the revision that the status names as stable: of its
// ReplicaSet, of the Deployment, or of what spec.template brings. It is nil without one.
func (p *position) namedStable() *corev1.PodTemplateSpec {
	name := p.status.StableRevision
	if name == "" {
		return nil
	}
	for _, rs := range p.ReplicaSets {
		if !deleted(rs) && rs.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == name {
			return &rs.Spec.Template
		}
	}
	for _, t := range []*corev1.PodTemplateSpec{&p.Deployment.Spec.Template, p.Template} {
		if t != nil && plan.TemplateHash(t, p.Deployment.Status.CollisionCount, p.Minor) == name {
			return t
		}
	}
	return nil
}
