package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
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
	v := newView(&o, now)
	v.decide()
	return v.decision()
}

// Abandon returns the writes that let go of a Deployment whose BatchRelease is gone. If
// it is held, it is handed back, so that the native controller finishes what its template
// says. Its records are deleted.
func Abandon(o Observed) []Action {
	o.Release = &v1alpha1.BatchRelease{}
	v := newView(&o, time.Time{})
	switch {
	case v.d == nil:
		return nil
	case !v.touched():
		return forgetAll(o)
	}
	if err := v.measure(); err != nil {
		v.strategy = completeStrategy(&appsv1.DeploymentStrategy{})
	}
	v.endHold("the plan is gone", nil)
	return append(v.actions, forgetAll(o)...)
}

func forgetAll(o Observed) []Action {
	var actions []Action
	for _, r := range newestFirst(o.Records) {
		actions = append(actions, Forget{because: "the plan is gone", Record: r})
	}
	return actions
}

func (v *view) decide() {
	v.followClock()
	v.excuse()
	if (v.d == nil || v.d.DeletionTimestamp != nil) && releasing(&v.status) {
		v.refuseApproval() // it would stay in the status until the Deployment is back
	}
	if v.d == nil {
		v.awaitDeployment()
		return
	}
	if v.d.DeletionTimestamp != nil {
		v.awaitDeletion()
		return
	}
	if v.Rival != "" {
		v.stall(ReasonAnotherPlan, fmt.Sprintf("BatchRelease %s governs Deployment %s: a plan of a GitSource goes before one made by hand, and among equals the older one; delete one of the two", v.Rival, v.d.Name))
		return
	}
	if reason, message := v.unusable(v.measure()); reason != "" {
		v.refuse(reason, message)
		return
	}
	v.resume()
	if len(v.records) == 0 {
		v.adopt()
		return
	}
	if v.status.Phase == "" && !v.touched() && !plan.EqualTemplate(v.records[0].Template, &v.d.Spec.Template) && v.adopt() {
		return // a plan that comes back: what is on record ran before the last one went
	}
	v.resolve()
	if v.leftAlone() && !v.touched() {
		v.unreleased = v.brought != nil && !v.brought.equal(&v.d.Spec.Template)
		v.stand()
		v.report(ReasonReleasePaused, "annotation "+v1alpha1.AnnotationReconcile+" of the Deployment is "+v1alpha1.AnnotationReconcileDisabled+"; nothing begins, and what others change stays")
		return
	}
	v.observeApproval()
	v.observeSteps()
	if v.requestedRollback() {
		return
	}
	switch {
	case v.isDrift() && v.Contested > 0:
		v.wait, v.unreleased = v.Contested, true
		by := cmp.Or(v.ContestedBy, "template, strategy or paused of the Deployment were changed")
		v.report(ReasonDriftCorrected, by+contest.Until)
	case v.idle():
		v.settle()
	case !v.underWay():
		v.begin()
	default:
		v.decideRelease()
	}
}

// decideRelease is about the release or rollback that is under way. Until it has pods,
// its revision gets another name if admission makes another template of it.
func (v *view) decideRelease() {
	v.status.UpdateRevision = v.goal.name
	switch {
	case v.status.BeganFull && !v.runsAll():
		v.askFirst()
	case v.replicas == 0 && (v.status.RollingBack || v.lastStep() && !v.spec.Paused):
		v.finish("there is nothing to split", v.goal.template)
	case v.status.CurrentStepState == v1alpha1.StepInitial:
		v.decideInitial()
	default:
		v.decideStep()
	}
}

// awaitDeployment is about a Deployment that is not there: no pod of it runs.
func (v *view) awaitDeployment() {
	message := fmt.Sprintf("there is no Deployment %s/%s", v.Release.Namespace, v.spec.WorkloadRef.Name)
	if v.status.Phase != "" && v.status.Reason != ReasonDeploymentNotFound { // it was there
		v.warn(ReasonDeploymentNotFound, message)
	}
	s := &v.status
	s.Replicas, s.UpdatedReplicas, s.UpdatedReadyReplicas, s.UpdatedAvailableReplicas = 0, 0, 0, 0
	v.report(ReasonDeploymentNotFound, message)
}

// awaitDeletion is about a Deployment that is being deleted. It stays until its
// finalizers are gone: those of a foreground deletion with its ReplicaSets.
func (v *view) awaitDeletion() {
	message := fmt.Sprintf("Deployment %s/%s is being deleted", v.d.Namespace, v.d.Name)
	left := v.deadlineLength() - v.now.Sub(v.d.DeletionTimestamp.Time)
	if left > 0 {
		v.wait = left
		v.report(ReasonDeploymentNotFound, message)
		return
	}
	v.stall(ReasonDeploymentNotFound, fmt.Sprintf("%s; this has taken longer than %s: see its finalizers, %s", message, v.deadlineLength(), strings.Join(v.d.Finalizers, ", ")))
}

// leftAlone reports whether the Deployment is to be left as it is: no release begins.
// A release that has taken the hold goes on, since the Deployment would stay held;
// see [view.keep].
func (v *view) leftAlone() bool {
	return v.d.Annotations[v1alpha1.AnnotationReconcile] == v1alpha1.AnnotationReconcileDisabled
}

// unusable says what is wrong with what is to be released, or with the plan;
// bounds is what is wrong with the Deployment's strategy.
func (v *view) unusable(bounds error) (reason, message string) {
	if v.Refused != nil {
		v.wait = refusedInterval
		return cmp.Or(v.RefusedReason, ReasonTemplateRefused), v.Refused.Error()
	}
	if errs := plan.ValidateStrategy(&v.spec.Strategy, field.NewPath("spec", "strategy")); len(errs) > 0 {
		return ReasonInvalidPlan, errs.ToAggregate().Error()
	}
	if bounds != nil {
		return ReasonUnsupportedStrategy, "Deployment " + v.d.Name + ": spec.strategy: " + bounds.Error()
	}
	if v.strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return ReasonUnsupportedStrategy, fmt.Sprintf("Deployment %s: spec.strategy.type: %s cannot be released in batches; use RollingUpdate, or remove the plan", v.d.Name, v.strategy.Type)
	}
	return "", ""
}

// adopt takes what runs for stable: at first sight, and of a Deployment that
// has replaced one of the same name. Under a hold whose records were lost, what
// runs besides the template is stable.
//
// A native rollout that is under way is waited for: its template has not proved good. If
// spec.template brings another one meanwhile, the revision with the most available pods
// is stable. Otherwise the release would wait for ever behind a rollout that is stuck.
// adopt reports false if that is on record already.
func (v *view) adopt() bool {
	v.status = v1alpha1.BatchReleaseStatus{
		History: v.status.History, EndedReleases: v.status.EndedReleases, Conditions: v.status.Conditions,
		Reason: v.status.Reason, ReasonTime: v.status.ReasonTime, LastUpdateTime: v.status.LastUpdateTime,
	}
	template := &v.d.Spec.Template
	switch {
	case v.touched():
		// Fails where the Deployment is not as observed: handed back, its template is stable.
		v.do(Hold{because: "the records of the hold were lost", Template: template, Revision: revisionOf(v.Observed, template).name})
		template = v.mostOf(func(rs *appsv1.ReplicaSet) int32 {
			if plan.EqualTemplate(&rs.Spec.Template, &v.d.Spec.Template) {
				return 0
			}
			return size(rs)
		})
	case v.rollingNatively() && (v.spec.Template == nil || v.brings(&v.d.Spec.Template)):
		v.awaitNative()
		return true
	case v.rollingNatively():
		template = v.mostOf(func(rs *appsv1.ReplicaSet) int32 { return rs.Status.AvailableReplicas })
	}
	if len(v.records) > 0 && plan.EqualTemplate(template, v.records[0].Template) {
		return false
	}
	r := revisionOf(v.Observed, template)
	record := v.recordOf(r, 1)
	record.Sent = ""
	if v.brings(template) {
		record.Sent = plan.TemplateDigest(v.spec.Template)
	}
	if len(v.records) > 0 {
		r.id = record.Sent
		v.goal = r
		v.remember()
	} else {
		v.do(Remember{because: "it is what runs", Record: record})
	}
	v.report(ReasonTakingHold, "looking at "+r.name+" for the first time")
	return true
}

// brings reports whether a template is what spec.template brings. It compares with that
// as the API server completes it or, if the API server was not asked, with its record.
func (v *view) brings(t *corev1.PodTemplateSpec) bool {
	if v.spec.Template == nil || v.Template != nil {
		return plan.EqualTemplate(v.Template, t)
	}
	digest := plan.TemplateDigest(v.spec.Template)
	return slices.ContainsFunc(v.Records, func(r Record) bool { return r.Sent == digest && plan.EqualTemplate(r.Template, t) })
}

// mostOf returns the template of the ReplicaSet that has the most by a count, and
// the Deployment's where all have none.
func (v *view) mostOf(count func(*appsv1.ReplicaSet) int32) *corev1.PodTemplateSpec {
	template, most := &v.d.Spec.Template, int32(0)
	for _, rs := range v.ReplicaSets {
		if n := count(rs); n > most {
			most, template = n, &rs.Spec.Template
		}
	}
	return template
}

// rollingNatively reports whether the native controller has not finished what the
// Deployment's template says, as `kubectl rollout status` tells it.
func (v *view) rollingNatively() bool {
	s := &v.d.Status
	return s.ObservedGeneration < v.d.Generation || s.UpdatedReplicas < v.replicas || s.Replicas > s.UpdatedReplicas || s.AvailableReplicas < s.UpdatedReplicas
}

// awaitNative is about a Deployment that nothing of ours has touched, and that the
// native controller is rolling out. It is left when that has finished.
func (v *view) awaitNative() {
	v.unreleased = true
	s := &v.d.Status
	message := fmt.Sprintf("the native rollout has not finished: %d of %d pods are updated and %d available", s.UpdatedReplicas, v.replicas, s.AvailableReplicas)
	if v.unready = true; v.Pods != nil && v.Pods.Cause != "" {
		message += ": " + v.Pods.Cause
	}
	for _, c := range s.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse {
			v.stall(ReasonNativeRollout, message+": "+c.Message)
			return
		}
	}
	v.report(ReasonNativeRollout, message)
}

func (v *view) recordOf(r *revision, order int64) Record {
	strategy := v.strategy
	return Record{Order: order, Revision: r.name, Template: r.template, Sent: r.id, Strategy: &strategy}
}

// idle reports whether there is nothing to do: the Deployment is native, and
// its template is the stable one, which is where the way leads.
func (v *view) idle() bool {
	return !v.touched() && !v.forward() && (v.brought == nil || v.goal.equal(&v.d.Spec.Template))
}

// settle says that nothing moves. A release that was handed back just before a
// crash is completed here; drift in strategy and paused is undone.
func (v *view) settle() {
	if v.isNativeDrift() {
		v.warn(ReasonDriftCorrected, "strategy or paused of the Deployment were not what the manifest says")
		v.handBack("strategy or paused were changed by another field manager", nil)
	}
	if v.brought == nil { // spec.template is empty: what runs is stable
		if v.rollingNatively() && !v.stable.equal(&v.d.Spec.Template) {
			v.awaitNative()
			return
		}
		v.goal = revisionOf(v.Observed, &v.d.Spec.Template)
		v.goal.id = "" // it was not sent
		v.remember()
	} else if r := v.goal.record; v.brought == v.goal && v.spec.Template != nil && r.Sent != plan.TemplateDigest(v.spec.Template) {
		record := *r
		record.Sent = plan.TemplateDigest(v.spec.Template)
		v.do(Remember{because: "spec.template says the same otherwise", Record: record, Exists: true})
	}
	for _, r := range slices.Concat(v.releasing, v.outdated) {
		v.do(Forget{because: "it is not being released any more", Record: r})
	}
	v.complete()
	if n := v.replaced(); n > 0 && v.status.Reason == ReasonReleaseCompleted {
		v.unreleased = true
		v.report(ReasonNativeRollout, fmt.Sprintf("the native controller is replacing %d pods that do not run %s", n, v.goal.name))
	}
	v.watchPods()
}

// replaced is how many pods of other revisions the native controller is to replace.
func (v *view) replaced() int32 {
	n := v.others()
	for _, rs := range v.ReplicaSets {
		if deleted(rs) {
			n -= size(rs)
		}
	}
	return n
}

// isNativeDrift reports whether strategy or paused of a native Deployment are not those of
// the manifest.
func (v *view) isNativeDrift() bool {
	return v.spec.DeploymentStrategy != nil && (v.d.Spec.Paused || !equalStrategy(v.d.Spec.Strategy, v.strategy))
}

// isDrift reports whether a native Deployment is to be changed to what was released last.
func (v *view) isDrift() bool {
	switch s := &v.status; {
	case v.touched() || v.failed():
		return false
	case v.idle():
		return v.isNativeDrift()
	case s.Phase == v1alpha1.PhaseCompleted:
		return !v.forward()
	default:
		return v.spec.Paused && v.underWay() && s.CurrentStepState == v1alpha1.StepInitial && !v.stable.equal(&v.d.Spec.Template)
	}
}

// watchPods says so where fewer pods of a completed release are available than the
// Deployment's own bounds let be missing.
func (v *view) watchPods() {
	none := v.goal.rs == nil && v.replicas > 0
	if v.status.Reason != ReasonReleaseCompleted || !none && newSet(*v.goal).clamp().available >= v.replicas-v.unavailable {
		return
	}
	v.unreleased, v.unready = true, true
	v.report(ReasonPodsUnavailable, v.progress())
}

// underWay reports whether the status is about the release that the way leads to.
func (v *view) underWay() bool {
	switch v.status.Phase {
	case v1alpha1.PhaseInitial, v1alpha1.PhaseRollingUpdate, v1alpha1.PhaseFinalizing:
		return v.isGoal() && (v.status.RollingBack || v.status.UpdateCommit == v.spec.Commit)
	default:
		return false
	}
}

// isGoal reports whether the status is about the revision that the way leads to:
// by what was sent, since a name may change under it.
func (v *view) isGoal() bool {
	if v.status.UpdateTemplateDigest == "" { // a status of an earlier version
		return v.status.UpdateRevision == v.goal.name
	}
	return v.status.UpdateTemplateDigest == v.goal.id
}

// begin starts a release, or the way back. It moves nothing.
//
// A release begins at its first step and goes through all its gates, whatever runs
// already. The same template by another commit, and a release whose status was lost, have
// opened none.
func (v *view) begin() {
	lost := v.status.Phase == "" && v.touched()
	v.end()
	afterwards := !releasing(&v.status) || v.status.RollingBack // in the middle, only the stable one is a way back
	if v.status.Phase == v1alpha1.PhaseCompleted && !v.forward() && !v.failed() {
		v.warn(ReasonDriftCorrected, "the template of the Deployment was changed by a field manager other than Tranche")
	}
	if !v.failed() {
		v.clearFailed()
	}
	v.status.Phase = v1alpha1.PhaseInitial
	v.status.RollingBack = !v.forward() || afterwards && len(v.records) > 1 && v.goal.record != nil && v.goal.record.Name == v.records[1].Name
	v.status.StableRevision = v.stable.name
	v.status.UpdateRevision = v.goal.name
	v.status.UpdateTemplateDigest = v.goal.id
	v.status.UpdateCommit = v.spec.Commit
	v.status.StartTime = v.time()
	v.status.Approvals = nil
	v.status.BeganFull = !v.status.RollingBack && v.runsAll()
	v.enterFirst()
	if lost {
		v.openWhatRuns()
	}
	if v.status.RollingBack {
		v.event(ReasonRollingBack, "back to "+v.goal.name)
		v.report(ReasonRollingBack, "back to "+v.goal.name)
		return
	}
	v.event(ReasonReleaseStarted, fmt.Sprintf("%s to %s%s", v.stable.name, v.goal.name, fromCommit(v.spec.Commit)))
	v.report(ReasonTakingHold, fmt.Sprintf("about to release %s", v.goal.name))
}

// enterFirst puts the release at the step where it begins.
func (v *view) enterFirst() {
	step := 0
	switch {
	case v.status.BeganFull, v.status.RollingBack && v.runsAll():
		step = len(v.steps()) - 1
	case v.status.RollingBack:
		step = v.firstNotBelow(size(v.goal.rs))
	}
	v.status.OpenedReplicas = v.openTo(0)
	v.enter(step, v1alpha1.StepInitial)
}

// openWhatRuns is about a release whose status was lost in the middle. Its plan may have
// been edited since, and no one knows what its gates had allowed: what runs is all that
// it is sure of. A first step that wants more, or all pods at any N, waits at a gate
// before it.
func (v *view) openWhatRuns() {
	running := v.running()
	unasked := v.planned(0) <= running && !v.full()
	if running == 0 || unasked || v.status.RollingBack || v.status.BeganFull {
		return
	}
	v.status.OpenedReplicas = []intstr.IntOrString{intstr.FromInt32(running)}
}

func (v *view) clearFailed() {
	v.status.FailedRevision, v.status.FailedCommit, v.status.FailedTemplateDigest, v.status.FailedMessage = "", "", "", ""
}

func fromCommit(commit string) string {
	if commit == "" {
		return ""
	}
	return ", from commit " + commit
}

// firstNotBelow returns the first step whose target is not below what runs.
func (v *view) firstNotBelow(size int32) int {
	last := len(v.steps()) - 1
	for i := range last {
		if goal, _ := v.apart(v.planned(i)); goal >= size {
			return i
		}
	}
	return last
}

// enter puts the release at a step. It moves nothing.
func (v *view) enter(step int, state v1alpha1.StepState) {
	replicas := v.steps()[step].Replicas
	v.status.CurrentStepIndex = int32(step)
	v.status.CurrentStepReplicas = &replicas
	v.setState(state)
	v.status.RequestedApproval = nil
	v.status.CurrentStepTarget, v.status.CurrentStepLostSeconds = 0, 0
	v.status.ProgressTime = v.time()
	v.status.BestAvailableReplicas = newSet(*v.goal).clamp().available
}

func (v *view) setState(s v1alpha1.StepState) {
	v.status.CurrentStepState = s
	v.status.StepStateTime = v.time()
}

// decideInitial is about a release that has not taken the hold yet, or has
// taken over another's. It is left when the native controller has seen the
// hold and the template.
func (v *view) decideInitial() {
	switch {
	case v.edited():
		allowed := v.status.OpenedReplicas
		v.enterFirst()
		if v.running() > 0 && v.forward() && !slices.Contains(allowed, plan.Full) { // no edit adds to what is there
			v.status.OpenedReplicas = allowed
		}
		v.report(ReasonTakingHold, "the steps have changed; "+v.goal.name+" has not begun")
	case v.spec.Paused:
		v.follow()
		if !v.touched() && !v.stable.equal(&v.d.Spec.Template) { // paused freezes what Git brings, and nothing else runs meanwhile
			v.warn(ReasonDriftCorrected, "the template of the Deployment was changed while the plan is paused; it is put back")
			v.handBack("the template was changed while the plan is paused", v.stable.template)
		}
		v.report(ReasonReleasePaused, "the plan is paused; "+v.goal.name+" has not begun")
	case v.unrecorded():
		v.record()
	case v.parked() || v.inHold() && v.seen():
		v.status.Phase = v1alpha1.PhaseRollingUpdate
		v.enter(int(v.status.CurrentStepIndex), v1alpha1.StepUpgrade)
		v.report(ReasonUpgrading, v.progress())
	default:
		v.hold(fmt.Sprintf("release of %s", v.goal.name))
		if v.status.Reason != ReasonRollingBack {
			v.report(ReasonTakingHold, "about to release "+v.goal.name+v.unanswered())
		} else if len(v.actions) == 0 {
			v.report(ReasonRollingBack, "back to "+v.goal.name+v.unanswered())
		}
	}
}

// inHold reports whether the Deployment is held at the goal's template. That template
// must be on record as the API server returned it for the controller's own write.
func (v *view) inHold() bool {
	return Held(v.d) && v.goal.record != nil && v.goal.equal(&v.d.Spec.Template)
}

// unrecorded reports whether the Deployment is held at the goal's template, which is not
// on record. The controller ended between the two writes, or an earlier version took the
// hold.
func (v *view) unrecorded() bool {
	return Held(v.d) && v.goal.record == nil && v.goal.equal(&v.d.Spec.Template)
}

func (v *view) record() {
	v.do(Remember{because: "it is under release", Record: v.recordOf(v.goal, 0)})
}

// seen reports whether the native controller has acted on what is there.
func (v *view) seen() bool { return v.d.Status.ObservedGeneration >= v.d.Generation }

// hold takes the hold, once the native controller has finished with what is
// there. A strategy that only the Deployment knows is put on record before it
// is overwritten.
func (v *view) hold(why string) {
	opened := v.touched() && !Held(v.d) // another manager has: put back at once, whatever was seen
	if v.inHold() || !opened && !v.seen() || !v.touched() && v.scaling() {
		return
	}
	if r := v.records[0]; !v.touched() && (r.Strategy == nil || !equalStrategy(*r.Strategy, v.strategy)) {
		r.Strategy = &v.strategy
		v.do(Remember{because: "its strategy has changed", Record: r, Exists: true})
	}
	if v.severalActive() { // one alone is marked when another one gets pods
		for _, rs := range v.ReplicaSets { // admission may make the template of any of them of what is written
			v.unsaturate(rs)
		}
	}
	v.do(Hold{because: because(why), Template: v.goal.sent, Revision: v.goal.name})
	record := v.recordOf(v.goal, 0)
	if v.goal.record != nil {
		record = *v.goal.record
		record.Sent = v.goal.id
		record.Order = 0 // where admission makes another template of it, that is not stable yet
	}
	v.do(Remember{because: because(why), Record: record, Written: true, Renames: size(v.goal.rs) == 0})
	for _, r := range v.releasing {
		// While it has a ReplicaSet, it may come again under another template. Its pods then
		// count against the gates (I3), also if admission would make another one of it today.
		if r.Sent != v.goal.id && findReplicaSet(v.ReplicaSets, r.Template) == nil && findReplicaSet(v.ReplicaSets, r.Kept) == nil {
			v.do(Forget{because: "it is not being released any more", Record: r})
		}
	}
}

// answers is how long the native controller may take without a word on it.
const answers = 20 * time.Second

// unanswered says why the native controller has not done what the release waits for, as
// far as its condition tells. It is empty before [answers] have passed.
func (v *view) unanswered() string {
	if v.seen() && (v.touched() || !v.scaling()) {
		return ""
	}
	was := &v.Release.Status
	if !waitsForCluster[was.Reason] && was.Reason != ReasonRollingBack || was.ReasonTime == nil {
		v.wakeIn(answers)
		return ""
	}
	if left := answers - v.now.Sub(v.status.ReasonTime.Time); left > 0 {
		v.wakeIn(left)
		return ""
	}
	for _, c := range v.d.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			return "; the Deployment controller cannot scale: " + c.Message
		}
	}
	if !v.seen() {
		return fmt.Sprintf("; the Deployment controller has not answered for more than %s", answers)
	}
	return fmt.Sprintf("; the Deployment controller has not brought the pods to %d for more than %s", v.replicas, answers)
}

// scaling reports whether the native controller is on its way to N with the one active
// ReplicaSet, or with one if none is active. It would go on with that under the hold.
func (v *view) scaling() bool {
	var active []*appsv1.ReplicaSet
	for _, rs := range v.ReplicaSets {
		if size(rs) > 0 {
			active = append(active, rs)
		}
	}
	return len(active) == 1 && size(active[0]) != v.replicas || len(active) == 0 && v.replicas > 0
}

// severalActive reports whether more than one ReplicaSet has a size.
func (v *view) severalActive() bool {
	n := 0
	for _, rs := range v.ReplicaSets {
		if size(rs) > 0 {
			n++
		}
	}
	return n > 1
}

// unsaturate marks a ReplicaSet that is desired as large as it is, and is to stand beside
// others, as desired otherwise. At an N of that size the native controller takes it for
// saturated, and sends all others to 0 (H6).
func (v *view) unsaturate(rs *appsv1.ReplicaSet) {
	if v.replicas == 0 || size(rs) == 0 || rs.Annotations[AnnotationDesiredReplicas] != strconv.Itoa(int(size(rs))) {
		return
	}
	desired := v.replicas
	if size(rs) == desired {
		desired++
	}
	v.do(Resize{because: "it would pass for saturated (H6)", ReplicaSet: rs, To: size(rs), Desired: desired, Max: v.replicas + v.surge})
}

// others is how many pods do not run the goal's revision.
func (v *view) others() int32 {
	var n int32
	for _, rs := range v.ReplicaSets {
		if rs != v.goal.rs {
			n += size(rs)
		}
	}
	return n
}

// parked reports whether there is nothing to split, so that the Deployment is native and
// at its stable template. That is so at 1 replica without surge. It is also so at 0
// replicas, where a hold would bring all pods up on the update revision afterwards (H4).
// The last step is never parked: it may run everything.
func (v *view) parked() bool {
	goal, _ := v.target(int(v.status.CurrentStepIndex))
	return goal == 0 && !v.lastStep()
}

// decideStep is about a step whose predecessor's gate has opened. It is left
// for the next step through a gate, and from the last one by hand-back.
func (v *view) decideStep() {
	if v.edited() {
		v.reposition()
		return
	}
	if v.parked() {
		v.park()
		return
	}
	if v.withheld() {
		v.unhold()
		v.report(ReasonReleasePaused, "the plan is paused; "+v.progress())
		return
	}
	if v.unrecorded() {
		v.record()
		return
	}
	if !v.inHold() {
		v.restoreHold()
		return
	}
	if !v.seen() {
		v.report(ReasonTakingHold, "waiting for the native controller to see the hold of "+v.goal.name+v.unanswered())
		return
	}
	v.trackProgress()
	sets := v.split()
	v.move(sets, v.because())
	v.advance(len(v.actions) == 0 && v.done(sets))
}

// edited reports whether the plan has changed at the step that the release is at.
func (v *view) edited() bool {
	steps, i := v.steps(), int(v.status.CurrentStepIndex)
	return i < 0 || i >= len(steps) || v.status.CurrentStepReplicas == nil || steps[i].Replicas != *v.status.CurrentStepReplicas
}

// askFirst is about a release that began with all pods, and that has them no longer. It
// has opened no gate, and goes through all of them.
func (v *view) askFirst() {
	v.status.BeganFull = false
	state := v1alpha1.StepInitial
	if v.status.Phase != v1alpha1.PhaseInitial {
		v.status.Phase, state = v1alpha1.PhaseRollingUpdate, v1alpha1.StepUpgrade
	}
	v.enter(0, state)
	v.report(ReasonUpgrading, v.progress())
}

// reposition goes on at the first step whose target is not below what runs, but at none
// that wants more than the last gate allowed. If even the first step does, it waits at a
// gate before it.
func (v *view) reposition() {
	step := v.firstNotBelow(size(v.goal.rs))
	for step > 0 && v.planned(step) > v.allowed() {
		step--
	}
	asked := slices.Contains(v.opened(), plan.Full)
	switch last := len(v.steps()) - 1; {
	case v.status.BeganFull: // it has still nothing to ask
		step = last
		if asked { // by a plan of one step
			v.status.OpenedReplicas = v.openTo(0)
		}
	case !v.forward() || asked:
	case step == last: // as many pods as there are replicas are not all that may come
		step = max(0, last-1)
	}
	// Admission may have made the stable template of what was sent: the gates are asked all the same.
	if (v.forward() || !v.status.RollingBack) && v.status.CurrentStepIndex == 0 && !v.status.BeganFull {
		step = 0 // no gate has opened: the first one is asked, whatever the steps are now
		at := v.status.CurrentStepReplicas
		unmoved := v.running() == 0 && at != nil && slices.Equal(v.opened(), []intstr.IntOrString{*at}) // and no gate has opened
		if unmoved && v.planned(0) < v.allowed() {
			v.status.OpenedReplicas = v.openTo(0)
		}
	}
	v.enter(step, v1alpha1.StepUpgrade)
	v.status.Phase = v1alpha1.PhaseRollingUpdate
	v.event(ReasonPlanChanged, fmt.Sprintf("the steps have changed; going on at step %d", v.status.CurrentStepIndex))
	v.report(ReasonUpgrading, v.progress())
}

// withheld reports whether there is nothing to split since the plan was paused before the
// step's first pod. A hold with one active set would be no safe place to wait. At 0
// replicas the native controller takes that one away, and all pods come up on the update
// revision afterwards (H4).
func (v *view) withheld() bool {
	return v.spec.Paused && v.forward() && size(v.goal.rs) == 0 && len(v.middle()) == 0
}

// unhold leaves the Deployment to the native controller, at the stable template.
func (v *view) unhold() {
	if v.shadowed(v.stable.template) {
		return
	}
	if v.touched() || !v.stable.equal(&v.d.Spec.Template) {
		v.handBack("there is nothing to split", v.stable.template)
	}
}

// park does so where the step wants no pod.
func (v *view) park() {
	v.unhold()
	if v.replicas == 0 {
		v.report(ReasonScaledToZero, fmt.Sprintf("the Deployment has 0 replicas; %s goes on at step %d when it has some", v.goal.name, v.status.CurrentStepIndex))
		return
	}
	v.advance(len(v.actions) == 0)
}

// restoreHold puts back a hold that is not there or not whole.
func (v *view) restoreHold() {
	why := "release of " + v.goal.name
	if !v.touched() { // it was parked: no deadline ran
		v.status.ProgressTime, v.status.BestAvailableReplicas = v.time(), 0
	} else {
		why = "the hold was changed by another field manager"
		v.warn(ReasonDriftCorrected, "template, strategy or paused of the held Deployment were changed; the hold is put back")
	}
	v.hold(why)
	v.report(ReasonTakingHold, "keeping the native controller off for "+v.goal.name)
}

// move asks for the sizes that this round may have.
func (v *view) move(sets []set, why because) {
	next, now := v.next(sets), numbers(sets)
	beside := total(now[1:]) > 0 || slices.ContainsFunc(next[1:], func(n int32) bool { return n > 0 })
	v.unsaturateDeleted(sets, next)
	// The goal is first (H1, H6), but not before what stays has its size. It does not get
	// smaller first while it is all that runs: the native controller would bring it back
	// to N (H26).
	last := next[0] < sets[0].size && (next[0] == 0 || active(now[1:]) == 0)
	if beside && (next[0] == sets[0].size || last) {
		v.unsaturate(sets[0].rs)
	}
	var order []int
	if !last {
		order = append(order, 0)
	}
	for _, turn := range []func(i int) bool{ // what leaves goes after what stays has its size
		func(i int) bool { return next[i] > sets[i].size },
		func(i int) bool { return next[i] <= sets[i].size && next[i] > 0 },
		func(i int) bool { return next[i] <= sets[i].size && next[i] == 0 },
	} {
		for i := 1; i < len(next); i++ {
			if turn(i) {
				order = append(order, i)
			}
		}
	}
	if last {
		order = append(order, 0)
	}
	v.write(sets, next, order, beside, why)
}

// write asks for the sizes in this order. If a ReplicaSet must be made whose name is taken,
// nothing shrinks before it is there. Nothing moves before that of the goal is there (H1).
func (v *view) write(sets []set, next []int32, order []int, beside bool, why because) {
	nameless := slices.IndexFunc(order, func(i int) bool { return next[i] > 0 && v.nameless(sets[i]) })
	for _, i := range order {
		waits := nameless >= 0 && (order[nameless] == 0 || next[i] < sets[i].size || v.nameless(sets[i]))
		if next[i] != sets[i].size && !waits {
			v.resize(sets[i], next[i], i == 0 && beside, why)
		}
	}
	if nameless >= 0 { // last, since it ends the round
		v.do(CountCollision{because: why, Name: NameWithHash(v.d.Name, sets[order[nameless]].hash)})
	}
}

// nameless reports whether a set has no ReplicaSet, and none can be made under its name.
func (v *view) nameless(s set) bool { return s.rs == nil && v.taken(s.hash) }

// next returns the sizes that this round may have.
func (v *view) next(sets []set) []int32 {
	return rolling{replicas: v.replicas, surge: v.surge, unavailable: v.unavailable, kept: v.keptPods(), sets: numbers(sets)}.next()
}

// because says what a move is for.
func (v *view) because() because {
	if v.status.RollingBack {
		return "rolling back to " + because(v.goal.name)
	}
	goal, _ := v.target(int(v.status.CurrentStepIndex))
	return because(fmt.Sprintf("step %d: %d of %d run %s", v.status.CurrentStepIndex, goal, v.replicas, v.goal.name))
}

// resize writes a size. A goal of full size beside others is marked as desired larger.
// Otherwise the native controller would take it for saturated, and send all others to 0
// (H6).
func (v *view) resize(s set, to int32, beside bool, why because) {
	desired, maximum := v.replicas, v.replicas+v.surge
	if beside && to == v.replicas {
		desired++
	}
	if s.rs == nil {
		var number int64
		if s.name == v.goal.name {
			number = maxRevision(v.ReplicaSets) + 1
		}
		v.do(CreateReplicaSet{because: why, ReplicaSet: newReplicaSet(v.d, &s.revision, number, to, desired, maximum)})
		return
	}
	v.do(Resize{because: why, ReplicaSet: s.rs, To: to, Desired: desired, Max: maximum})
}

// handBack ends the hold, and keeps the template that the Deployment then has:
// admission may change it with the write.
func (v *view) handBack(why because, template *corev1.PodTemplateSpec) {
	v.endHold(why, template)
	if len(v.records) == 0 {
		return
	}
	record := v.records[0]
	if g := v.goal; g != nil && (template == nil || g.equal(template)) {
		record = v.recordOf(g, 0)
		if g.record != nil {
			record = *g.record
		}
	}
	record.Order = v.newest() + 1
	v.do(Remember{because: why, Record: record, Written: true})
}

// newest is the order of the newest record once the actions so far are made.
func (v *view) newest() int64 {
	var order int64
	if len(v.records) > 0 {
		order = v.records[0].Order
	}
	for _, a := range v.actions {
		if r, ok := a.(Remember); ok {
			order = max(order, r.Record.Order)
		}
	}
	return order
}

// endHold ends the hold. It first puts a ReplicaSet right that has the Deployment's size
// and other size annotations. If that one is the only one active, or another user deletes
// the others, the native controller never makes a ReplicaSet again (H11). It leaves the
// one of the hold's template alone beside others: that would pass for saturated (H6).
func (v *view) endHold(why because, template *corev1.PodTemplateSpec) {
	var active []*appsv1.ReplicaSet
	for _, rs := range v.ReplicaSets {
		if size(rs) > 0 {
			active = append(active, rs)
		}
	}
	for _, rs := range active {
		safe := len(active) == 1 || !plan.EqualTemplate(&rs.Spec.Template, &v.d.Spec.Template)
		if safe && size(rs) == v.replicas && !hasSizeAnnotations(rs, v.replicas, v.replicas+v.surge) {
			v.do(Resize{because: why, ReplicaSet: rs, To: v.replicas, Desired: v.replicas, Max: v.replicas + v.surge})
		}
	}
	v.do(HandBack{because: why, Strategy: v.strategy, Template: template})
}

// done reports whether the step's pods are available, and at the last step
// whether all others are gone.
func (v *view) done(sets []set) bool {
	goal, others := v.target(int(v.status.CurrentStepIndex))
	if v.lastStep() && total(numbers(sets[1:])) > 0 {
		return false
	}
	if !v.forward() {
		goal = max(goal, v.replicas-others)
	}
	g := sets[0]
	return g.size >= goal && g.observed && g.clamp().available >= goal
}

func numbers(sets []set) []pods {
	ps := make([]pods, len(sets))
	for i, s := range sets {
		ps[i] = s.pods
	}
	return ps
}

// advance goes on from a step that is done, and says what is waited for at one
// that is not.
func (v *view) advance(done bool) {
	v.refuseApproval()
	if !done {
		v.deferApproval()
	}
	switch {
	case done && v.lastStep():
		v.finalize()
	case done:
		v.recover()
		v.status.CurrentStepTarget, _ = v.target(int(v.status.CurrentStepIndex))
		v.decideGate()
	case v.status.CurrentStepState == v1alpha1.StepUpgrade:
		v.decideDeadline()
	case v.status.Phase == v1alpha1.PhaseFinalizing || v.lost():
		v.fallBack()
	default:
		v.awaitPods()
	}
}

// finalize hands back. The step that says so comes first, by itself. A paused plan does
// not keep the hold: there is nothing left to freeze. A hold with one active set is no
// safe place to wait (H1).
func (v *view) finalize() {
	if v.status.Phase != v1alpha1.PhaseFinalizing {
		v.status.Phase = v1alpha1.PhaseFinalizing
		v.setState(v1alpha1.StepCompleted)
		v.report(ReasonHandingBack, "all pods run "+v.goal.name+"; handing back to the native controller")
		return
	}
	if v.shadowed(&v.d.Spec.Template) {
		v.report(ReasonHandingBack, "all pods run "+v.goal.name+"; the hand-back waits"+v.deletions())
		return
	}
	v.finish("all pods run "+because(v.goal.name), nil)
}

// finish hands back at what has become stable.
func (v *view) finish(why because, template *corev1.PodTemplateSpec) {
	v.remember()
	v.handBack(why, template)
	v.complete()
}

// remember makes the goal's revision the newest record, and forgets what is
// neither stable nor last stable any more.
func (v *view) remember() {
	if v.goal.equal(v.records[0].Template) {
		return
	}
	record, old := v.recordOf(v.goal, v.records[0].Order+1), slices.Concat(v.records, v.releasing)
	i := slices.IndexFunc(old, func(r Record) bool { return v.goal.equal(r.Template) })
	if i >= 0 {
		record.Name, record.ResourceVersion, record.Revision = old[i].Name, old[i].ResourceVersion, old[i].Revision
		old = slices.Delete(old, i, i+1)
	}
	kept := keptRecords - 1
	// A rollback that another commit has ended may have brought all pods to the last stable one.
	without := i > 0 && i < len(v.records) && !slices.Contains(v.opened(), plan.Full)
	if v.status.RollingBack || without {
		kept = 0 // what was left by going back is nothing to go back to: it would be released with no gate
	}
	remember := Remember{because: "all pods run it", Record: record, Exists: i >= 0}
	first := kept > 0 || i < 0 || i >= len(v.records) // or nothing stable would be on record
	if first {
		v.do(remember)
	}
	for _, r := range old {
		if kept > 0 && r.Order > 0 && (r.Sent == "" || r.Sent != v.goal.id) {
			kept--
			continue
		}
		v.do(Forget{because: "neither stable nor last stable", Record: r})
	}
	if !first {
		v.do(remember) // a controller that ends before the others are forgotten would leave one as last stable
	}
}
