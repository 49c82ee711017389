package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/contest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Decide returns what to write next, in this order, and the status that is
// then true. The same Observed and now always give the same Decision; it keeps
// nothing between calls, and changes nothing of what it is given.
func Decide(o Observed, now time.Time) Decision {
	d := newDraft(&o, now)
	decide(d)
	return conclude(d)
}

// Abandon returns the writes that let go of a Deployment whose BatchRelease is gone. If
// it is held, it is handed back, so that the native controller finishes what its template
// says. Its records are deleted. One that is [Mislabelled] loses at most the label:
// Tranche has neither paused it nor set its strategy.
func Abandon(o Observed) []Action {
	o.Release = &v1alpha1.BatchRelease{}
	if o.Deployment == nil {
		return nil
	}
	d := newDraft(&o, time.Time{})
	if !d.touched() {
		return forgetAll(o)
	}
	if Mislabelled(&o) {
		if !d.native() { // an admission policy would refuse to take the label off
			return nil
		}
		return []Action{Unlabel{because: "no plan governs the Deployment, and no hold of Tranche is on it"}}
	}
	strategy := d.strategy
	if d.badBounds != nil {
		strategy = completeStrategy(&appsv1.DeploymentStrategy{})
	}
	endHold(d, "the plan is gone", strategy, nil)
	return append(d.actions, forgetAll(o)...)
}

func forgetAll(o Observed) []Action {
	var actions []Action
	for _, r := range newestFirst(o.Records) {
		actions = append(actions, Forget{because: "the plan is gone", Record: r})
	}
	return actions
}

func decide(d *draft) {
	followClock(d)
	excuseAbsence(d)
	if d.Deployment == nil || d.Deployment.DeletionTimestamp != nil {
		decideWithout(d)
		return
	}
	if d.Rival != "" {
		d.stall(ReasonAnotherPlan, fmt.Sprintf("BatchRelease %s governs Deployment %s: a plan of a GitSource goes before one made by hand, and among equals the older one; delete one of the two", d.Rival, d.Deployment.Name))
		return
	}
	if reason, message := unusable(d); reason != "" {
		refusePlan(d, reason, message)
		return
	}
	excuseRefusal(d)
	if len(d.records) == 0 {
		adoptRunning(d)
		return
	}
	if d.status.Phase == "" && !d.touched() && !plan.EqualTemplate(d.records[0].Template, &d.Deployment.Spec.Template) && adoptRunning(d) {
		return // a plan that comes back: what is on record ran before the last one went
	}
	d.course = d.resolve(&d.status)
	if d.leftAlone() && !d.touched() {
		d.unreleased = d.brought != nil && !d.brought.equal(&d.Deployment.Spec.Template)
		standStill(d)
		d.report(ReasonReleasePaused, "annotation "+v1alpha1.AnnotationReconcile+" of the Deployment is "+v1alpha1.AnnotationReconcileDisabled+"; nothing begins, and what others change stays")
		return
	}
	decideUsable(d)
}

// decideUsable is about a plan that can be used, and a Deployment that it may change.
func decideUsable(d *draft) {
	observeApproval(d)
	observeSteps(d)
	if requestedRollback(d) {
		return
	}
	switch {
	case isDrift(&d.position) && d.Contested > 0:
		d.wait, d.unreleased = d.Contested, true
		by := cmp.Or(d.ContestedBy, "template, strategy or paused of the Deployment were changed")
		d.report(ReasonDriftCorrected, by+contest.Until)
	case d.idle():
		settleIdle(d)
	case !d.underWay():
		beginRelease(d)
	default:
		decideRelease(d)
	}
}

// decideRelease is about the release or rollback that is under way. Until it has pods,
// its revision gets another name if admission makes another template of it.
func decideRelease(d *draft) {
	d.status.UpdateRevision = d.goal.name
	switch {
	case d.status.BeganFull && !d.runsAll():
		askFirstGate(d)
	case d.replicas == 0 && (d.status.RollingBack || d.lastStep() && !d.spec.Paused):
		finishRelease(d, "there is nothing to split", d.goal.template)
	case d.status.CurrentStepState == v1alpha1.StepInitial:
		decideInitial(d)
	default:
		decideStep(d)
	}
}

// decideWithout is about a Deployment that is gone, or that is going.
func decideWithout(d *draft) {
	if releasing(&d.status) {
		refuseApproval(d) // it would stay in the status until the Deployment is back
	}
	if d.Deployment == nil {
		awaitDeployment(d)
		return
	}
	awaitDeletion(d)
}

// awaitDeployment is about a Deployment that is not there: no pod of it runs.
func awaitDeployment(d *draft) {
	message := fmt.Sprintf("there is no Deployment %s/%s", d.Release.Namespace, d.spec.WorkloadRef.Name)
	if d.status.Phase != "" && d.status.Reason != ReasonDeploymentNotFound { // it was there
		d.warn(ReasonDeploymentNotFound, message)
	}
	s := &d.status
	s.Replicas, s.UpdatedReplicas, s.UpdatedReadyReplicas, s.UpdatedAvailableReplicas = 0, 0, 0, 0
	d.report(ReasonDeploymentNotFound, message)
}

// awaitDeletion is about a Deployment that is being deleted. It stays until its
// finalizers are gone: those of a foreground deletion with its ReplicaSets.
func awaitDeletion(d *draft) {
	message := fmt.Sprintf("Deployment %s/%s is being deleted", d.Deployment.Namespace, d.Deployment.Name)
	left := d.deadlineLength() - d.now.Sub(d.Deployment.DeletionTimestamp.Time)
	if left > 0 {
		d.wait = left
		d.report(ReasonDeploymentNotFound, message)
		return
	}
	d.stall(ReasonDeploymentNotFound, fmt.Sprintf("%s%s; this has taken longer than %s: %s",
		message, d.deletions(), d.deadlineLength(), deletionAdvice(d.Deployment.Finalizers)))
}

// deletionAdvice says which finalizers keep a Deployment. That of a foreground deletion goes
// with the ReplicaSets and pods, so theirs are the ones to look at.
func deletionAdvice(finalizers []string) string {
	others := slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool { return f == metav1.FinalizerDeleteDependents })
	var advice []string
	if len(others) > 0 {
		advice = append(advice, "see its finalizers, "+strings.Join(others, ", "))
	}
	if len(others) < len(finalizers) {
		advice = append(advice, "it waits until its ReplicaSets and their pods are gone, see the finalizers of those")
	}
	return strings.Join(advice, "; ")
}

// leftAlone reports whether the Deployment is to be left as it is: no release begins.
// A release that has taken the hold goes on, since the Deployment would stay held;
// see [course.keep].
func (f *facts) leftAlone() bool {
	return f.Deployment.Annotations[v1alpha1.AnnotationReconcile] == v1alpha1.AnnotationReconcileDisabled
}

// unusable says what is wrong with what is to be released, with the plan, or with the
// Deployment's strategy.
func unusable(d *draft) (reason, message string) {
	if d.Refused != nil {
		d.wait = refusedInterval
		return cmp.Or(d.RefusedReason, ReasonTemplateRefused), d.Refused.Error()
	}
	if errs := plan.ValidateStrategy(&d.spec.Strategy, field.NewPath("spec", "strategy")); len(errs) > 0 {
		return ReasonInvalidPlan, errs.ToAggregate().Error()
	}
	if d.badBounds != nil {
		return ReasonUnsupportedStrategy, "Deployment " + d.Deployment.Name + ": spec.strategy: " + d.badBounds.Error()
	}
	if d.strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return ReasonUnsupportedStrategy, fmt.Sprintf("Deployment %s: spec.strategy.type: %s cannot be released in batches; use RollingUpdate, or remove the plan", d.Deployment.Name, d.strategy.Type)
	}
	return "", ""
}

// adoptRunning takes what runs for stable: at first sight, and of a Deployment that
// has replaced one of the same name. Under a hold whose records were lost,
// stableUnderHold finds it.
//
// A native rollout that is under way is waited for: its template has not proved good. If
// spec.template brings another one meanwhile, the revision with the most available pods
// is stable. Otherwise the release would wait for ever behind a rollout that is stuck.
// adopt reports false if that is on record already.
func adoptRunning(d *draft) bool {
	template, why := &d.Deployment.Spec.Template, because("it is what runs")
	if d.touched() {
		if template, why = stableUnderHold(&d.position); template == nil {
			awaitRecords(d)
			return true
		}
	}
	d.status = v1alpha1.BatchReleaseStatus{
		History: d.status.History, EndedReleases: d.status.EndedReleases, Conditions: d.status.Conditions,
		Reason: d.status.Reason, ReasonTime: d.status.ReasonTime, LastUpdateTime: d.status.LastUpdateTime,
	}
	switch {
	case d.touched():
		// Fails where the Deployment is not as observed: handed back, its template is stable.
		live := &d.Deployment.Spec.Template
		d.do(Hold{because: "the records of the hold were lost", Template: live, Revision: revisionOf(d.Observed, live).name})
	case d.rollingNatively() && (d.spec.Template == nil || d.brings(&d.Deployment.Spec.Template)):
		awaitNative(d)
		return true
	case d.rollingNatively():
		template = d.mostOf(func(rs *appsv1.ReplicaSet) int32 { return rs.Status.AvailableReplicas })
	}
	if len(d.records) > 0 && plan.EqualTemplate(template, d.records[0].Template) {
		return false
	}
	r := revisionOf(d.Observed, template)
	record := d.recordOf(r, 1)
	record.Sent = ""
	if d.brings(template) {
		record.Sent = plan.TemplateDigest(d.spec.Template)
	}
	if len(d.records) > 0 {
		r.id = record.Sent
		d.course = d.to(r)
		rememberGoal(d)
	} else {
		d.do(Remember{because: why, Record: record})
	}
	d.report(ReasonTakingHold, "looking at "+r.name+" for the first time")
	return true
}

// brings reports whether a template is what spec.template brings. It compares with that
// as the API server completes it or, if the API server was not asked, with its record.
func (f *facts) brings(t *corev1.PodTemplateSpec) bool {
	if f.Release.Spec.Template == nil || f.Template != nil {
		return plan.EqualTemplate(f.Template, t)
	}
	digest := plan.TemplateDigest(f.Release.Spec.Template)
	return slices.ContainsFunc(f.Records, func(r Record) bool { return r.Sent == digest && plan.EqualTemplate(r.Template, t) })
}

// mostOf returns the template of the ReplicaSet that has the most by a count, and
// the Deployment's where all have none.
func (f *facts) mostOf(count func(*appsv1.ReplicaSet) int32) *corev1.PodTemplateSpec {
	template, most := &f.Deployment.Spec.Template, int32(0)
	for _, rs := range f.ReplicaSets {
		if n := count(rs); n > most {
			most, template = n, &rs.Spec.Template
		}
	}
	return template
}

// rollingNatively reports whether the native controller has not finished what the
// Deployment's template says, as `kubectl rollout status` tells it.
func (f *facts) rollingNatively() bool {
	s := &f.Deployment.Status
	return s.ObservedGeneration < f.Deployment.Generation || s.UpdatedReplicas < f.replicas || s.Replicas > s.UpdatedReplicas || s.AvailableReplicas < s.UpdatedReplicas
}

// awaitNative is about a Deployment that nothing of ours has touched, and that the
// native controller is rolling out. It is left when that has finished.
func awaitNative(d *draft) {
	d.unreleased = true
	s := &d.Deployment.Status
	message := fmt.Sprintf("the native rollout has not finished: %d of %d pods are updated and %d available", s.UpdatedReplicas, d.replicas, s.AvailableReplicas)
	if d.unready = true; d.Pods != nil && d.Pods.Cause != "" {
		message += ": " + d.Pods.Cause
	}
	for _, c := range s.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse {
			d.stall(ReasonNativeRollout, message+": "+c.Message)
			return
		}
	}
	d.report(ReasonNativeRollout, message)
}

func (f *facts) recordOf(r *revision, order int64) Record {
	strategy := f.strategy
	return Record{Order: order, Revision: r.name, Template: r.template, Sent: r.id, Strategy: &strategy}
}

// idle reports whether there is nothing to do: the Deployment is native, and
// its template is the stable one, which is where the way leads.
func (c *course) idle() bool {
	return !c.touched() && !c.forward() && (c.brought == nil || c.goal.equal(&c.Deployment.Spec.Template))
}

// settleIdle says that nothing moves. A release that was handed back just before a
// crash is completed here; drift in strategy and paused is undone.
func settleIdle(d *draft) {
	if d.isNativeDrift() {
		d.warn(ReasonDriftCorrected, "strategy or paused of the Deployment were not what the manifest says")
		d.handBack("strategy or paused were changed by another field manager", nil)
	}
	if d.brought == nil { // spec.template is empty: what runs is stable
		if d.rollingNatively() && !d.stable.equal(&d.Deployment.Spec.Template) {
			awaitNative(d)
			return
		}
		runs := revisionOf(d.Observed, &d.Deployment.Spec.Template)
		runs.id = "" // it was not sent
		d.course = d.to(runs)
		rememberGoal(d)
	} else if d.goal == d.stable {
		renewStable(d)
	}
	for _, r := range slices.Concat(d.releasing, d.outdated) {
		d.do(Forget{because: "it is not being released any more", Record: r})
	}
	completeRelease(d)
	if n := d.replaced(); n > 0 && d.status.Reason == ReasonReleaseCompleted {
		d.unreleased = true
		d.report(ReasonNativeRollout, fmt.Sprintf("the native controller is replacing %d pods that do not run %s", n, d.goal.name))
	}
	watchPods(d)
}

// renewStable brings the record of the stable revision up to date. Git may say otherwise
// what is the same to the API server. And admission, or a new default, may have changed
// the template of the Deployment. That is recorded in place of the old one: if the policy
// goes, nothing is to be released.
func renewStable(d *draft) {
	old := d.stable.record
	record := *old
	if d.brought == d.stable && d.spec.Template != nil {
		record.Sent = plan.TemplateDigest(d.spec.Template)
	}
	switch {
	case old.Kept != nil:
		record.Name, record.ResourceVersion, record.Kept = "", "", nil
		record.Order = d.newest() + 1
		d.do(Remember{because: "the API server makes another template of it", Record: record})
		d.do(Forget{because: "its template is another one today", Record: *old})
	case record.Sent != old.Sent:
		d.do(Remember{because: "spec.template says the same otherwise", Record: record, Exists: true})
	}
}

// replaced is how many pods of other revisions the native controller is to replace.
func (c *course) replaced() int32 {
	n := c.others()
	for _, rs := range c.ReplicaSets {
		if deleted(rs) {
			n -= size(rs)
		}
	}
	return n
}

// isNativeDrift reports whether strategy or paused of a native Deployment are not those of
// the manifest.
func (f *facts) isNativeDrift() bool {
	return f.Release.Spec.DeploymentStrategy != nil && (f.Deployment.Spec.Paused || !equalStrategy(f.Deployment.Spec.Strategy, f.strategy))
}

// isDrift reports whether a native Deployment is to be changed to what was released last.
func isDrift(p *position) bool {
	switch s := &p.status; {
	case p.touched() || p.failed():
		return false
	case p.idle():
		return p.isNativeDrift()
	case s.Phase == v1alpha1.PhaseCompleted:
		return !p.forward()
	default:
		return p.spec.Paused && p.underWay() && s.CurrentStepState == v1alpha1.StepInitial && !p.stable.equal(&p.Deployment.Spec.Template)
	}
}

// watchPods says so where fewer pods of a completed release are available than the
// Deployment's own bounds let be missing.
func watchPods(d *draft) {
	none := d.goal.rs == nil && d.replicas > 0
	if d.status.Reason != ReasonReleaseCompleted || !none && newSet(*d.goal).clamp().available >= d.replicas-d.unavailable {
		return
	}
	d.unreleased, d.unready = true, true
	d.report(ReasonPodsUnavailable, d.progress())
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

// beginRelease starts a release, or the way back. It moves nothing.
//
// A release begins at its first step and goes through all its gates, whatever runs
// already. The same template by another commit, and a release whose status was lost, have
// opened none.
func beginRelease(d *draft) {
	lost := d.status.Phase == "" && d.touched()
	archiveCurrent(d)
	afterwards := !releasing(&d.status) || d.status.RollingBack // in the middle, only the stable one is a way back
	if d.status.Phase == v1alpha1.PhaseCompleted && !d.forward() && !d.failed() {
		d.warn(ReasonDriftCorrected, "the template of the Deployment was changed by a field manager other than Tranche")
	}
	if !d.failed() {
		d.clearFailed()
	}
	d.status.Phase = v1alpha1.PhaseInitial
	d.status.RollingBack = !d.forward() || afterwards && len(d.records) > 1 && d.goal.record != nil && d.goal.record.Name == d.records[1].Name
	d.status.StableRevision = d.stable.name
	d.status.UpdateRevision = d.goal.name
	d.status.UpdateTemplateDigest = d.goal.id
	d.status.UpdateCommit = d.spec.Commit
	d.status.StartTime = d.time()
	d.status.Approvals = nil
	d.status.BeganFull = !d.status.RollingBack && d.runsAll()
	d.enterFirst()
	if lost {
		d.openWhatRuns()
	}
	if d.status.RollingBack {
		d.event(ReasonRollingBack, "back to "+d.goal.name)
		d.report(ReasonRollingBack, "back to "+d.goal.name)
		return
	}
	d.event(ReasonReleaseStarted, fmt.Sprintf("%s to %s%s", d.stable.name, d.goal.name, fromCommit(d.spec.Commit)))
	d.report(ReasonTakingHold, fmt.Sprintf("about to release %s", d.goal.name))
}

// enterFirst puts the release at the step where it begins.
func (d *draft) enterFirst() {
	step := 0
	switch {
	case d.status.BeganFull, d.status.RollingBack && d.runsAll():
		step = len(d.steps()) - 1
	case d.status.RollingBack:
		step = d.firstNotBelow(size(d.goal.rs))
	}
	d.status.OpenedReplicas = d.openTo(0)
	d.enter(step, v1alpha1.StepInitial)
}

// openWhatRuns is about a release whose status was lost in the middle. Its plan may have
// been edited since, and no one knows what its gates had allowed: what runs is all that
// it is sure of. A first step that wants more, or all pods at any N, waits at a gate
// before it.
func (d *draft) openWhatRuns() {
	running := d.running()
	unasked := d.planned(0) <= running && !d.full()
	if running == 0 || unasked || d.status.RollingBack || d.status.BeganFull {
		return
	}
	d.status.OpenedReplicas = []intstr.IntOrString{intstr.FromInt32(running)}
}

func (d *draft) clearFailed() {
	d.status.FailedRevision, d.status.FailedCommit, d.status.FailedTemplateDigest, d.status.FailedMessage = "", "", "", ""
}

func fromCommit(commit string) string {
	if commit == "" {
		return ""
	}
	return ", from commit " + commit
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

// enter puts the release at a step. It moves nothing.
func (d *draft) enter(step int, state v1alpha1.StepState) {
	replicas := d.steps()[step].Replicas
	d.status.CurrentStepIndex = int32(step)
	d.status.CurrentStepReplicas = &replicas
	d.setState(state)
	d.status.RequestedApproval = nil
	d.status.CurrentStepTarget, d.status.CurrentStepLostSeconds = 0, 0
	d.status.ProgressTime = d.time()
	d.status.BestAvailableReplicas = newSet(*d.goal).clamp().available
}

func (d *draft) setState(s v1alpha1.StepState) {
	d.status.CurrentStepState = s
	d.status.StepStateTime = d.time()
}

// decideInitial is about a release that has not taken the hold yet, or has
// taken over another's. It is left when the native controller has seen the
// hold and the template.
func decideInitial(d *draft) {
	switch {
	case d.edited():
		allowed := d.status.OpenedReplicas
		d.enterFirst()
		if d.running() > 0 && d.forward() && !slices.Contains(allowed, plan.Full) { // no edit adds to what is there
			d.status.OpenedReplicas = allowed
		}
		d.report(ReasonTakingHold, "the steps have changed; "+d.goal.name+" has not begun")
	case d.spec.Paused:
		followReplicas(d)
		if !d.touched() && !d.stable.equal(&d.Deployment.Spec.Template) { // paused freezes what Git brings, and nothing else runs meanwhile
			d.warn(ReasonDriftCorrected, "the template of the Deployment was changed while the plan is paused; it is put back")
			d.handBack("the template was changed while the plan is paused", d.stable.template)
		}
		d.report(ReasonReleasePaused, "the plan is paused; "+d.goal.name+" has not begun")
	case d.unrecorded():
		recordGoal(d)
	case d.parked() || d.inHold() && d.seen():
		d.status.Phase = v1alpha1.PhaseRollingUpdate
		d.enter(int(d.status.CurrentStepIndex), v1alpha1.StepUpgrade)
		if d.replicas == 0 && d.parked() {
			unhold(d) // in this round: each moment in which N may grow again is one of H4
		}
		d.report(ReasonUpgrading, d.progress())
	default:
		takeHold(d, fmt.Sprintf("release of %s", d.goal.name))
		if d.status.Reason != ReasonRollingBack {
			d.report(ReasonTakingHold, "about to release "+d.goal.name+unanswered(d))
		} else if len(d.actions) == 0 {
			d.report(ReasonRollingBack, "back to "+d.goal.name+unanswered(d))
		}
	}
}

// others is how many pods do not run the goal's revision.
func (c *course) others() int32 {
	var n int32
	for _, rs := range c.ReplicaSets {
		if rs != c.goal.rs {
			n += size(rs)
		}
	}
	return n
}

// decideStep is about a step whose predecessor's gate has opened. It is left
// for the next step through a gate, and from the last one by hand-back.
func decideStep(d *draft) {
	if d.edited() {
		reposition(d)
		return
	}
	if d.parked() {
		parkStep(d)
		return
	}
	if d.withheld() {
		unhold(d)
		d.report(ReasonReleasePaused, "the plan is paused; "+d.progress())
		return
	}
	if d.unrecorded() {
		recordGoal(d)
		return
	}
	if !d.inHold() {
		restoreHold(d)
		return
	}
	if !d.seen() {
		d.report(ReasonTakingHold, "waiting for the native controller to see the hold of "+d.goal.name+unanswered(d))
		return
	}
	trackProgress(d)
	sets := d.split()
	moveSizes(d, sets, d.because())
	advance(d, len(d.actions) == 0 && stepDone(&d.position, sets))
}

// edited reports whether the plan has changed at the step that the release is at.
func (p *position) edited() bool {
	steps, i := p.steps(), int(p.status.CurrentStepIndex)
	return i < 0 || i >= len(steps) || p.status.CurrentStepReplicas == nil || steps[i].Replicas != *p.status.CurrentStepReplicas
}

// askFirstGate is about a release that began with all pods, and that has them no longer. It
// has opened no gate, and goes through all of them.
func askFirstGate(d *draft) {
	d.status.BeganFull = false
	state := v1alpha1.StepInitial
	if d.status.Phase != v1alpha1.PhaseInitial {
		d.status.Phase, state = v1alpha1.PhaseRollingUpdate, v1alpha1.StepUpgrade
	}
	d.enter(0, state)
	d.report(ReasonUpgrading, d.progress())
}

// reposition goes on at the first step whose target is not below what runs, but at none
// that wants more than the last gate allowed. If even the first step does, it waits at a
// gate before it.
func reposition(d *draft) {
	step := d.firstNotBelow(size(d.goal.rs))
	for step > 0 && d.planned(step) > d.allowed() {
		step--
	}
	asked := slices.Contains(d.opened(), plan.Full)
	switch last := len(d.steps()) - 1; {
	case d.status.BeganFull: // it has still nothing to ask
		step = last
		if asked { // by a plan of one step
			d.status.OpenedReplicas = d.openTo(0)
		}
	case !d.forward() || asked:
	case step == last: // as many pods as there are replicas are not all that may come
		step = max(0, last-1)
	}
	// Admission may have made the stable template of what was sent: the gates are asked all the same.
	if (d.forward() || !d.status.RollingBack) && d.status.CurrentStepIndex == 0 && !d.status.BeganFull {
		step = 0 // no gate has opened: the first one is asked, whatever the steps are now
		lowerFirst(d)
	}
	d.enter(step, v1alpha1.StepUpgrade)
	d.status.Phase = v1alpha1.PhaseRollingUpdate
	d.event(ReasonPlanChanged, fmt.Sprintf("the steps have changed; going on at step %d", d.status.CurrentStepIndex))
	d.report(ReasonUpgrading, d.progress())
}

// lowerFirst lowers what a release may run that has opened no gate, and has no pod yet, to
// what the first step wants now.
func lowerFirst(d *draft) {
	at := d.status.CurrentStepReplicas
	unmoved := d.running() == 0 && at != nil && slices.Equal(d.opened(), []intstr.IntOrString{*at}) // and no gate has opened
	if unmoved && d.planned(0) < d.allowed() {
		d.status.OpenedReplicas = d.openTo(0)
	}
}

// stepDone reports whether the step's pods are available, and at the last step
// whether all others are gone.
func stepDone(p *position, sets []set) bool {
	goal, others := p.target(int(p.status.CurrentStepIndex))
	if p.lastStep() && total(numbers(sets[1:])) > 0 {
		return false
	}
	if !p.forward() {
		goal = max(goal, p.replicas-others)
	}
	g := sets[0]
	return g.size >= goal && g.observed && g.clamp().available >= goal
}

// advance goes on from a step that is done, and says what is waited for at one
// that is not.
func advance(d *draft, done bool) {
	refuseApproval(d)
	if !done {
		deferApproval(d)
	}
	switch {
	case done && d.lastStep():
		finalize(d)
	case done:
		countLoss(d)
		d.status.CurrentStepTarget, _ = d.target(int(d.status.CurrentStepIndex))
		decideGate(d)
	case d.status.CurrentStepState == v1alpha1.StepUpgrade:
		decideDeadline(d)
	case d.status.Phase == v1alpha1.PhaseFinalizing || lostPods(&d.position):
		fallBack(d)
	default:
		awaitPods(d)
	}
}

// finalize hands back. The step that says so comes first, by itself. A paused plan does
// not keep the hold: there is nothing left to freeze. A hold with one active set is no
// safe place to wait (H1).
func finalize(d *draft) {
	if d.status.Phase != v1alpha1.PhaseFinalizing {
		d.status.Phase = v1alpha1.PhaseFinalizing
		d.setState(v1alpha1.StepCompleted)
		d.report(ReasonHandingBack, "all pods run "+d.goal.name+"; handing back to the native controller")
		return
	}
	if d.shadowed(&d.Deployment.Spec.Template) {
		d.report(ReasonHandingBack, "all pods run "+d.goal.name+"; the hand-back waits"+d.deletions())
		return
	}
	finishRelease(d, "all pods run "+because(d.goal.name), nil)
}

// finishRelease hands back at what has become stable.
func finishRelease(d *draft, why because, template *corev1.PodTemplateSpec) {
	rememberGoal(d)
	d.handBack(why, template)
	completeRelease(d)
}

// rememberGoal makes the goal's revision the newest record, and forgets what is
// neither stable nor last stable any more.
func rememberGoal(d *draft) {
	if d.goal.equal(d.records[0].Template) {
		return
	}
	record, old := d.recordOf(d.goal, d.records[0].Order+1), slices.Concat(d.records, d.releasing)
	i := slices.IndexFunc(old, func(r Record) bool { return d.goal.equal(r.Template) })
	if i >= 0 {
		record.Name, record.ResourceVersion, record.Revision = old[i].Name, old[i].ResourceVersion, old[i].Revision
		old = slices.Delete(old, i, i+1)
	}
	kept := keptRecords - 1
	// A rollback that another commit has ended may have brought all pods to the last stable one.
	without := i > 0 && i < len(d.records) && !slices.Contains(d.opened(), plan.Full)
	if d.status.RollingBack || without {
		kept = 0 // what was left by going back is nothing to go back to: it would be released with no gate
	}
	remember := Remember{because: "all pods run it", Record: record, Exists: i >= 0}
	first := kept > 0 || i < 0 || i >= len(d.records) // or nothing stable would be on record
	if first {
		d.do(remember)
	}
	forgetOld(d, old, kept)
	if !first {
		d.do(remember) // a controller that ends before the others are forgotten would leave one as last stable
	}
}

// forgetOld forgets records, except for so many of what was stable before the goal.
func forgetOld(d *draft, old []Record, kept int) {
	for _, r := range old {
		if kept > 0 && r.Order > 0 && (r.Sent == "" || r.Sent != d.goal.id) {
			kept--
			continue
		}
		d.do(Forget{because: "neither stable nor last stable", Record: r})
	}
}
