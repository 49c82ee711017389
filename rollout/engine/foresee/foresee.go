package foresee

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
	"github.com/tranche-dev/tranche/rollout/engine/position"
)

// OutlookKind says what begins.
type OutlookKind string

// The kinds of an [Outlook].
const (
	// OutlookNothing: the Deployment stays as it is.
	OutlookNothing OutlookKind = "Nothing"
	// OutlookRelease: a release begins. Its gates are closed.
	OutlookRelease OutlookKind = "Release"
	// OutlookSupersedes: a release begins and ends the release under way. Its
	// gates are closed.
	OutlookSupersedes OutlookKind = "Supersedes"
	// OutlookRollBack: the controller goes back by the rollback steps, without
	// an approval.
	OutlookRollBack OutlookKind = "RollBack"
	// OutlookFirstInstall: the Deployment does not exist, and is installed with
	// all its pods at once.
	OutlookFirstInstall OutlookKind = "FirstInstall"
	// OutlookContinues: the release or rollback under way goes on.
	OutlookContinues OutlookKind = "Continues"
	// OutlookPlanChanged: the release or rollback under way goes on by other steps.
	OutlookPlanChanged OutlookKind = "PlanChanged"
	// OutlookBlocked: nothing begins or goes on. Reason and Message say why.
	OutlookBlocked OutlookKind = "Blocked"
)

// Outlook is what the controller will do next with a Deployment.
type Outlook struct {
	Kind OutlookKind
	// From and To are the names of the revision that runs and of the revision
	// that comes. They are equal where no revision comes.
	From, To string
	// Superseded is the revision of the release that ends; empty without one.
	Superseded string
	// RollingBack: Steps are those of a rollback.
	RollingBack bool
	// Step is the index in Steps at which the release begins or goes on.
	Step int
	// Replicas of the Deployment.
	Replicas int32
	// Steps of the release or rollback; empty where there is none.
	Steps []OutlookStep
	// Reason and Message are those of the status that the controller will write.
	Reason, Message string
}

// OutlookStep is a step with the number of pods that it comes to.
type OutlookStep struct {
	// Replicas as the plan says it.
	Replicas intstr.IntOrString
	// Target is the number of pods of the revision To when the step is done.
	Target int32
	// Gated: the plan, as edited, wants more than the last gate allowed, so that an
	// approval is needed before the step.
	Gated bool
	// Allowed is how many pods may run until then.
	Allowed int32
	// Gate after the step.
	Gate OutlookGate
}

// OutlookGate is what a step waits for when its pods are available.
type OutlookGate struct {
	// Approval: an approval opens the gate.
	Approval bool
	// Pause after which the gate opens by itself.
	Pause time.Duration
	// Last: no step follows.
	Last bool
}

func (g OutlookGate) String() string {
	switch {
	case g.Last:
		return "complete"
	case g.Approval:
		return "an approval"
	case g.Pause > 0:
		return "a pause of " + duration.HumanDuration(g.Pause)
	}
	return "the next step, once its pods are available"
}

// Foresee returns what the controller will do next with what is observed. To ask what a
// commit would begin, replace the spec of o.Release and o.Template by those of the
// commit. The status stays as it is.
//
// It decides nothing itself. It calls [engine.Decide], makes the writes that move no pod on a
// copy, and calls again. It stops when the status names a release, a pod would move, or
// nothing changes. The Outlook is read from the statuses. It changes nothing of what it
// is given.
func Foresee(o engine.Observed, now time.Time) Outlook {
	if o.Deployment == nil || o.Deployment.DeletionTimestamp != nil {
		return firstInstall(o)
	}
	f := newForesight(o)
	for range foreseenRounds {
		if !f.round(now) {
			break
		}
	}
	return f.outlook(now)
}

// foreseenRounds bounds the rounds. First sight of a Deployment, begin, hold and
// the first step take five.
const foreseenRounds = 12

// firstInstall is about a Deployment that does not exist: gitsync creates it.
func firstInstall(o engine.Observed) Outlook {
	out := Outlook{Kind: OutlookFirstInstall, Reason: v1alpha1.ReasonDeploymentNotFound}
	if o.Template != nil {
		out.To = plan.TemplateHash(o.Template, nil, o.Minor)
	}
	return out
}

// foresight is a run of rounds on a copy of what was observed.
type foresight struct {
	o      engine.Observed
	before v1alpha1.BatchReleaseStatus
	// began is the first status that names another release than before; nil
	// without one.
	began *v1alpha1.BatchReleaseStatus
	// edited is the first status of the release under way at a step of an edited
	// plan; nil without one.
	edited *v1alpha1.BatchReleaseStatus
}

func newForesight(o engine.Observed) *foresight {
	f := &foresight{o: o, before: o.Release.Status}
	f.o.Release, f.o.Deployment = o.Release.DeepCopy(), o.Deployment.DeepCopy()
	f.o.Records = slices.Clone(o.Records)
	// The native controller will have seen what is there before a pod moves.
	f.o.Deployment.Status.ObservedGeneration = f.o.Deployment.Generation
	return f
}

// round calls Decide once, and reports whether another round can tell more. The
// round after the one that begins something says whether that may go on.
func (f *foresight) round(now time.Time) bool {
	d := engine.Decide(f.o, now)
	told, last := f.began != nil || f.edited != nil, f.o.Release.Status
	f.recall(&d.Status)
	f.o.Release.Status = d.Status
	switch {
	case told:
	case position.Releasing(&d.Status) && !sameRelease(&d.Status, &f.before):
		f.began = d.Status.DeepCopy()
	case slices.ContainsFunc(d.Events, func(e engine.Event) bool { return e.Reason == v1alpha1.ReasonPlanChanged }):
		f.edited = d.Status.DeepCopy()
	}
	for _, a := range d.Actions {
		if !f.make(a) {
			return false
		}
	}
	settled := len(d.Actions) == 0 && equality.Semantic.DeepEqual(last, d.Status)
	return !settled && (!told || d.Status.Phase == v1alpha1.PhaseInitial)
}

// recall puts back what was failed before, as the controller does from what the
// Deployment keeps. A status that sees the Deployment for the first time forgets it.
func (f *foresight) recall(s *v1alpha1.BatchReleaseStatus) {
	spec, was := &f.o.Release.Spec, &f.before
	if s.FailedRevision == "" && was.FailedRevision != "" && was.FailedCommit == spec.Commit &&
		was.FailedTemplateDigest == plan.TemplateDigest(spec.Template) {
		s.FailedRevision, s.FailedCommit = was.FailedRevision, was.FailedCommit
		s.FailedTemplateDigest, s.FailedMessage = was.FailedTemplateDigest, was.FailedMessage
	}
}

// make makes a write on the copy, and reports whether it moves no pod.
func (f *foresight) make(a engine.Action) bool {
	d := f.o.Deployment
	switch a := a.(type) {
	case engine.Remember:
		same := func(r engine.Record) bool { return plan.EqualTemplate(r.Template, a.Record.Template) }
		if a.Written && slices.ContainsFunc(f.o.Records, same) {
			return true // admission changes nothing here
		}
		f.forget(same)
		f.o.Records = append(f.o.Records, a.Record)
	case engine.Forget:
		f.forget(func(r engine.Record) bool { return r.Name == a.Record.Name && r.Revision == a.Record.Revision })
	case engine.Hold:
		d.Labels = map[string]string{v1alpha1.LabelHeld: "true"}
		d.Spec.Paused, d.Spec.Template = true, *a.Template
		d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	case engine.HandBack:
		d.Labels, d.Spec.Paused, d.Spec.Strategy = nil, false, a.Strategy
		if a.Template != nil {
			d.Spec.Template = *a.Template
		}
	case engine.ClearRollback:
		delete(f.o.Release.Annotations, v1alpha1.AnnotationRollback)
	case engine.Resize:
		return a.To == facts.Size(a.ReplicaSet)
	case engine.UnlabelReplicaSet:
		i := slices.IndexFunc(f.o.ReplicaSets, func(rs *appsv1.ReplicaSet) bool { return rs.Name == a.ReplicaSet.Name })
		f.o.ReplicaSets[i] = a.ReplicaSet.DeepCopy()
		delete(f.o.ReplicaSets[i].Labels, v1alpha1.LabelHeld)
	case engine.CreateReplicaSet, engine.CountCollision:
		return false
	}
	return true
}

func (f *foresight) forget(which func(engine.Record) bool) {
	f.o.Records = slices.DeleteFunc(f.o.Records, which)
}

// sameRelease reports whether two statuses name the same release under way.
func sameRelease(a, b *v1alpha1.BatchReleaseStatus) bool {
	return position.Releasing(a) == position.Releasing(b) && a.UpdateRevision == b.UpdateRevision &&
		a.UpdateCommit == b.UpdateCommit && a.RollingBack == b.RollingBack
}

// outlook reads the statuses before and after.
func (f *foresight) outlook(now time.Time) Outlook {
	after := &f.o.Release.Status
	at := after
	switch {
	case f.began != nil:
		at = f.began
	case f.edited != nil:
		at = f.edited
	case position.Releasing(&f.before) && f.before.UpdateRevision == after.UpdateRevision && !position.Releasing(after):
		at = &f.before // its hand-back was all that was left
	}
	out := Outlook{
		Kind: f.kind(after), To: at.UpdateRevision, From: at.StableRevision, RollingBack: at.RollingBack,
		Step: int(at.CurrentStepIndex), Replicas: facts.Replicas(f.o.Deployment), Reason: after.Reason, Message: after.Message,
	}
	if position.Releasing(&f.before) && !sameRelease(&f.before, at) {
		out.From = f.before.UpdateRevision
		if !f.before.RollingBack && f.before.UpdateRevision != at.StableRevision {
			out.Superseded = f.before.UpdateRevision
		}
	}
	if position.Releasing(at) {
		out.Steps = f.steps(at, now)
	}
	return out
}

func (f *foresight) kind(after *v1alpha1.BatchReleaseStatus) OutlookKind {
	// A release that misses its deadline is stalled too, and goes on when its pods come up.
	stalled := meta.IsStatusConditionTrue(after.Conditions, v1alpha1.ConditionStalled) &&
		after.Reason != v1alpha1.ReasonProgressDeadlineExceeded
	switch {
	case stalled || after.Reason == v1alpha1.ReasonReleasePaused:
		return OutlookBlocked
	case f.began != nil && f.began.RollingBack:
		return OutlookRollBack
	case f.began != nil && position.Releasing(&f.before) && !f.before.RollingBack && f.before.UpdateRevision != f.began.StableRevision:
		return OutlookSupersedes
	case f.began != nil:
		return OutlookRelease
	case f.edited != nil:
		return OutlookPlanChanged
	case position.Releasing(after):
		return OutlookContinues
	case !position.Releasing(&f.before):
		return OutlookNothing
	case f.before.UpdateRevision != after.UpdateRevision:
		return OutlookRollBack // there was no pod to take back
	}
	return OutlookContinues
}

// steps returns those of the release or rollback that a status is about.
func (f *foresight) steps(s *v1alpha1.BatchReleaseStatus, now time.Time) []OutlookStep {
	f.o.Release.Status = *s
	p := position.New(&f.o, now)
	if reason, _ := position.Unusable(&p.Course); reason != "" || len(p.StableRecords) == 0 {
		return nil // Decide has said why
	}
	p.Course = p.Resolve(s)
	var steps []OutlookStep
	for i, step := range p.Steps() {
		target, _ := p.SplitAt(i, p.Planned(i))
		gate := OutlookGate{Last: i == len(p.Steps())-1}
		gate.Approval = !gate.Last && step.Pause == nil
		if step.Pause != nil {
			gate.Pause = step.Pause.Duration.Duration
		}
		gated := i == int(s.CurrentStepIndex) && p.Capped()
		steps = append(steps, OutlookStep{Replicas: step.Replicas, Target: target, Gated: gated, Allowed: p.Allowed(), Gate: gate})
	}
	return steps
}

// String is the sentence for people.
func (o Outlook) String() string {
	switch o.Kind {
	case OutlookNothing:
		return "Nothing is released: " + o.Message + "."
	case OutlookRelease:
		return fmt.Sprintf("A release of %s begins, from %s. %s", o.To, o.From, o.first())
	case OutlookSupersedes:
		return fmt.Sprintf("A release of %s begins, and ends the release of %s. %s", o.To, o.Superseded, o.first())
	case OutlookRollBack:
		return fmt.Sprintf("The controller goes back to %s at once, without approvals.", o.To)
	case OutlookFirstInstall:
		return "The Deployment does not exist, and is installed with all its pods at once."
	case OutlookContinues:
		return fmt.Sprintf("The %s of %s goes on at step %d: %s.", o.noun(), o.To, o.Step, o.Message)
	case OutlookPlanChanged:
		return fmt.Sprintf("The steps change, and the %s of %s goes on at step %d. %s", o.noun(), o.To, o.Step, o.first())
	case OutlookBlocked:
		return fmt.Sprintf("Nothing begins (%s): %s.", o.Reason, o.Message)
	}
	return string(o.Kind)
}

func (o Outlook) noun() string {
	if o.RollingBack {
		return "rollback"
	}
	return "release"
}

// first says what the first step does, and what it then waits for.
func (o Outlook) first() string {
	if o.Replicas == 0 {
		return "The Deployment has 0 replicas; step 0 waits for some."
	}
	if o.Step < 0 || o.Step >= len(o.Steps) {
		return ""
	}
	s := o.Steps[o.Step]
	if s.Gated {
		return fmt.Sprintf("Step %d comes to %d of %d pods once it is approved: no gate has allowed that many.", o.Step, s.Target, o.Replicas)
	}
	return fmt.Sprintf("Step %d comes to %d of %d pods; after it comes %s.", o.Step, s.Target, o.Replicas, s.Gate)
}
