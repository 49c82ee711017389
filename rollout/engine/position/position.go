package position

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
)

// Position is a course with the status as the round has it so far. It tells the step that
// the release is at, and what its gates have opened. Its methods read.
type Position struct {
	Course
	Status v1alpha1.BatchReleaseStatus
}

// New returns the position by what is observed. Its course leads nowhere yet.
func New(o *facts.Observed, now time.Time) Position {
	return Position{
		Course: Course{Facts: facts.New(o, now), Spec: &o.Release.Spec},
		Status: *o.Release.Status.DeepCopy(),
	}
}

// Failed reports whether what Git brings is what was rolled back, and Git has
// said nothing else since.
func (p *Position) Failed() bool { return hasFailed(&p.Course, &p.Status) }

// Steps of the way: the plan's, or the rollback's.
func (p *Position) Steps() []v1alpha1.Step {
	if !p.Status.RollingBack {
		return p.Spec.Strategy.Steps
	}
	return plan.RollbackSteps(&p.Spec.Strategy)
}

// LastStep reports whether the release is at the step that ends it.
func (p *Position) LastStep() bool {
	return int(p.Status.CurrentStepIndex) >= len(p.Steps())-1 && !p.Capped()
}

// Capped reports whether the plan, as edited, lets the step have more than the
// last gate allowed. The step then waits at a gate before that.
//
// The last step is everything, at any N. At 0 replicas, or at 1, a number would allow as
// much, and the release would end past its gates.
func (p *Position) Capped() bool {
	switch step := int(p.Status.CurrentStepIndex); {
	case p.Status.RollingBack:
		return false
	case step >= len(p.Steps())-1:
		return !p.Full()
	default:
		return p.Planned(step) > p.Allowed()
	}
}

// Full reports whether all pods may run the update revision.
func (p *Position) Full() bool { return slices.Contains(p.Opened(), plan.Full) || p.beganFull() }

// beganFull reports whether the release began with all pods, and has them still: then
// it has nothing to ask a gate for, and opens none. A round that has not resolved what it
// leads to does not know.
func (p *Position) beganFull() bool {
	return p.Status.BeganFull && p.Goal != nil && p.Replicas > 0 && p.RunsAll()
}

// Allowed is how many pods of N the last gate of this release has let run the
// update revision (I3).
func (p *Position) Allowed() int32 {
	if p.Status.RollingBack || p.beganFull() {
		return p.Replicas
	}
	var most int32
	for _, r := range p.Opened() {
		most = max(most, plan.Limit(r, p.Replicas))
	}
	return most
}

// Opened is what the gates of this release have opened the way to.
func (p *Position) Opened() []intstr.IntOrString {
	switch {
	case len(p.Status.OpenedReplicas) > 0:
		return p.Status.OpenedReplicas
	case p.Status.CurrentStepReplicas != nil: // a status of an earlier version
		return []intstr.IntOrString{*p.Status.CurrentStepReplicas}
	}
	return p.OpenTo(0)
}

// OpenTo returns what the steps up to this one allow: the largest number and the
// largest percentage among them.
func (p *Position) OpenTo(step int) []intstr.IntOrString {
	var number, percent *intstr.IntOrString
	for _, s := range p.Steps()[:step+1] {
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

// Planned returns how many pods of N the plan lets run the goal's revision at
// step i.
func (p *Position) Planned(i int) int32 {
	steps := p.Steps()
	return plan.Target(steps, max(0, min(i, len(steps)-1)), p.Replicas) // the plan may have become shorter
}

// Target returns how many pods of N run the goal's revision when step i is done, and how
// many run others. The goal's are never more than the gates allow.
//
// Before the last step the others keep at least one pod. With only the goal active the
// native controller would bring the goal to a new N by itself. With a surge that pod is
// one above N. Without one the goal gets one less. That is 0 if N is 1: there is nothing
// to split.
func (p *Position) Target(i int) (goal, others int32) {
	return p.SplitAt(i, min(p.Planned(i), p.Allowed()))
}

// SplitAt returns the split of N at step i for a goal of this size.
func (p *Position) SplitAt(i int, goal int32) (int32, int32) {
	if i >= len(p.Steps())-1 && goal == p.Replicas && (p.Status.RollingBack || p.Full()) {
		if p.AwaitsVerdict() && p.canStayApart() {
			return p.apart(goal)
		}
		return goal, 0
	}
	return p.apart(goal)
}

// stopped reports whether the goal must not grow: the plan is paused, or the
// step has missed its deadline, or a metric fails. The API server may refuse it, too.
func (p *Position) stopped() bool {
	refused := p.GrowthRefused && p.others() > 0
	return refused || p.Spec.Paused || p.fails() || late(p)
}

// late reports whether the step has missed its deadline.
func late(p *Position) bool {
	return p.Status.CurrentStepState == v1alpha1.StepUpgrade && !p.Status.RollingBack && p.Deadline() <= 0
}

// UnderWay reports whether the status is about the release that the way leads to.
func (p *Position) UnderWay() bool {
	switch p.Status.Phase {
	case v1alpha1.PhaseInitial, v1alpha1.PhaseRollingUpdate, v1alpha1.PhaseFinalizing:
		return p.IsGoal() && (p.Status.RollingBack || p.Status.UpdateCommit == p.Spec.Commit)
	default:
		return false
	}
}

// IsGoal reports whether the status is about the revision that the way leads to:
// by what was sent, since a name may change under it.
func (p *Position) IsGoal() bool {
	if p.Status.UpdateTemplateDigest == "" { // a status of an earlier version
		return p.Status.UpdateRevision == p.Goal.Name
	}
	return p.Status.UpdateTemplateDigest == p.Goal.ID
}

// Ended returns the revision of the release or rollback under way, if another revision comes and all pods run the
// former by all its gates. Only the hand-back is missing, which may be refused for long. It is nil otherwise.
func Ended(p *Position) *facts.Revision {
	s := &p.Status
	if s.Phase != v1alpha1.PhaseFinalizing || s.UpdateTemplateDigest == "" || p.IsGoal() || HasEnded(p) {
		return nil
	}
	for _, r := range slices.Concat(p.ReleasingRecords, p.StableRecords) {
		ended := facts.RevisionOfRecord(p.Observed, &r)
		if running := facts.Size(ended.ReplicaSet); r.Sent == s.UpdateTemplateDigest && running > 0 && running >= p.Replicas {
			return ended
		}
	}
	return nil
}

// GoesBack reports whether what comes is a rollback: the stable revision, or the last stable one. In the middle of a
// release, only the stable one is a way back.
func GoesBack(p *Position) bool {
	afterwards := !Releasing(&p.Status) || p.Status.RollingBack || HasEnded(p)
	return !p.Forward() ||
		afterwards && len(p.StableRecords) > 1 && p.Goal.Record != nil && p.Goal.Record.Name == p.StableRecords[1].Name
}

// HasEnded reports whether the revision of the status is the stable one.
func HasEnded(p *Position) bool {
	return p.Status.UpdateTemplateDigest != "" && p.Status.UpdateTemplateDigest == p.Stable.ID
}

// Edited reports whether the plan has changed at the step that the release is at.
func (p *Position) Edited() bool {
	steps, i := p.Steps(), int(p.Status.CurrentStepIndex)
	return i < 0 || i >= len(steps) || p.Status.CurrentStepReplicas == nil || steps[i].Replicas != *p.Status.CurrentStepReplicas
}

// Parked reports whether there is nothing to split, so that the Deployment is native and
// at its stable template. That is so at 1 replica without surge. It is also so at 0
// replicas, where a hold would bring all pods up on the update revision afterwards (H4).
// The last step is parked only at 0 replicas, and only while it has a verdict to wait for.
func (p *Position) Parked() bool {
	goal, _ := p.Target(int(p.Status.CurrentStepIndex))
	return goal == 0 && (!p.LastStep() || p.AwaitsVerdict())
}

// FirstNotBelow returns the first step whose target is not below what runs.
func (p *Position) FirstNotBelow(size int32) int {
	last := len(p.Steps()) - 1
	for i := range last {
		if goal, _ := p.apart(p.Planned(i)); goal >= size {
			return i
		}
	}
	return last
}

// Releasing reports whether a status is about a release or rollback under way.
func Releasing(s *v1alpha1.BatchReleaseStatus) bool {
	return s.Phase != "" && s.Phase != v1alpha1.PhaseCompleted
}

// NamedStable returns the template of the revision that the status names as stable: of its
// ReplicaSet, of the Deployment, or of what spec.template brings. It is nil without one.
func (p *Position) NamedStable() *corev1.PodTemplateSpec {
	name := p.Status.StableRevision
	if name == "" {
		return nil
	}
	for _, rs := range p.ReplicaSets {
		if !facts.Deleted(rs) && rs.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == name {
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
