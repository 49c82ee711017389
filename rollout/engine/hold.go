package engine

import (
	"fmt"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/plan"
)

// inHold reports whether the Deployment is held at the goal's template. That template
// must be on record as the API server returned it for the controller's own write.
func (c *course) inHold() bool {
	return Held(c.Deployment) && c.goal.record != nil && c.goal.equal(&c.Deployment.Spec.Template)
}

// unrecorded reports whether the Deployment is held at the goal's template, which is not
// on record. The controller ended between the two writes, or an earlier version took the
// hold.
func (c *course) unrecorded() bool {
	return Held(c.Deployment) && c.goal.record == nil && c.goal.equal(&c.Deployment.Spec.Template)
}

func recordGoal(d *draft) {
	d.do(Remember{because: "it is under release", Record: d.recordOf(d.goal, 0)})
}

// seen reports whether the native controller has acted on what is there.
func (f *facts) seen() bool { return f.Deployment.Status.ObservedGeneration >= f.Deployment.Generation }

// takeHold takes the hold, once the native controller has finished with what is
// there. A strategy that only the Deployment knows is put on record before it
// is overwritten.
func takeHold(d *draft, why string) {
	opened := d.touched() && !Held(d.Deployment) // another manager has: put back at once, whatever was seen
	if d.inHold() || !opened && !d.seen() || !d.touched() && d.scaling() {
		return
	}
	if r := d.records[0]; !d.touched() && (r.Strategy == nil || !equalStrategy(*r.Strategy, d.strategy)) {
		r.Strategy = &d.strategy
		d.do(Remember{because: "its strategy has changed", Record: r, Exists: true})
	}
	if d.severalActive() { // one alone is marked when another one gets pods
		for _, rs := range d.ReplicaSets { // admission may make the template of any of them of what is written
			d.unsaturate(rs)
		}
	}
	d.do(Hold{because: because(why), Template: d.goal.sent, Revision: d.goal.name})
	record := d.recordOf(d.goal, 0)
	if d.goal.record != nil {
		record = *d.goal.record
		record.Sent = d.goal.id
		record.Order = 0 // where admission makes another template of it, that is not stable yet
	}
	d.do(Remember{because: because(why), Record: record, Written: true, Renames: size(d.goal.rs) == 0})
	forgetReplaced(d)
}

// forgetReplaced forgets what was being released before the goal.
func forgetReplaced(d *draft) {
	for _, r := range d.releasing {
		// While it has a ReplicaSet, it may come again under another template. Its pods then
		// count against the gates (I3), also if admission would make another one of it today.
		if r.Sent != d.goal.id && findReplicaSet(d.ReplicaSets, r.Template) == nil && findReplicaSet(d.ReplicaSets, r.Kept) == nil {
			d.do(Forget{because: "it is not being released any more", Record: r})
		}
	}
}

// answers is how long the native controller may take without a word on it.
const answers = 20 * time.Second

// unanswered says why the native controller has not done what the release waits for, as
// far as its condition tells. It is empty before [answers] have passed.
func unanswered(d *draft) string {
	if d.seen() && (d.touched() || !d.scaling()) {
		return ""
	}
	was := &d.Release.Status
	if !waitsForCluster[was.Reason] && was.Reason != ReasonRollingBack || was.ReasonTime == nil {
		d.wakeIn(answers)
		return ""
	}
	if left := answers - d.now.Sub(d.status.ReasonTime.Time); left > 0 {
		d.wakeIn(left)
		return ""
	}
	for _, c := range d.Deployment.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			return "; the Deployment controller cannot scale: " + c.Message
		}
	}
	if !d.seen() {
		return fmt.Sprintf("; the Deployment controller has not answered for more than %s", answers)
	}
	return fmt.Sprintf("; the Deployment controller has not brought the pods to %d for more than %s", d.replicas, answers)
}

// scaling reports whether the native controller is on its way to N with the one active
// ReplicaSet, or with one if none is active. It would go on with that under the hold.
func (f *facts) scaling() bool {
	var active []*appsv1.ReplicaSet
	for _, rs := range f.ReplicaSets {
		if size(rs) > 0 {
			active = append(active, rs)
		}
	}
	return len(active) == 1 && size(active[0]) != f.replicas || len(active) == 0 && f.replicas > 0
}

// severalActive reports whether more than one ReplicaSet has a size.
func (f *facts) severalActive() bool {
	n := 0
	for _, rs := range f.ReplicaSets {
		if size(rs) > 0 {
			n++
		}
	}
	return n > 1
}

// unsaturate marks a ReplicaSet that is desired as large as it is, and is to stand beside
// others, as desired otherwise. At an N of that size the native controller takes it for
// saturated, and sends all others to 0 (H6).
func (d *draft) unsaturate(rs *appsv1.ReplicaSet) {
	if d.replicas == 0 || size(rs) == 0 || rs.Annotations[AnnotationDesiredReplicas] != strconv.Itoa(int(size(rs))) {
		return
	}
	desired := d.replicas
	if size(rs) == desired {
		desired++
	}
	d.do(Resize{because: "it would pass for saturated (H6)", ReplicaSet: rs, To: size(rs), Desired: desired, Max: d.replicas + d.surge})
}

// parked reports whether there is nothing to split, so that the Deployment is native and
// at its stable template. That is so at 1 replica without surge. It is also so at 0
// replicas, where a hold would bring all pods up on the update revision afterwards (H4).
// The last step is never parked: it may run everything.
func (p *position) parked() bool {
	goal, _ := p.target(int(p.status.CurrentStepIndex))
	return goal == 0 && !p.lastStep()
}

// withheld reports whether there is nothing to split since the plan was paused before the
// step's first pod. A hold with one active set would be no safe place to wait. At 0
// replicas the native controller takes that one away, and all pods come up on the update
// revision afterwards (H4).
func (c *course) withheld() bool {
	return c.spec.Paused && c.forward() && size(c.goal.rs) == 0 && len(c.middle()) == 0
}

// unhold leaves the Deployment to the native controller, at the stable template.
func unhold(d *draft) {
	if d.shadowed(d.stable.template) {
		return
	}
	if d.touched() || !d.stable.equal(&d.Deployment.Spec.Template) {
		d.handBack("there is nothing to split", d.stable.template)
	}
}

// parkStep does so where the step wants no pod.
func parkStep(d *draft) {
	unhold(d)
	if d.replicas == 0 {
		d.report(ReasonScaledToZero, fmt.Sprintf("the Deployment has 0 replicas; %s goes on at step %d when it has some", d.goal.name, d.status.CurrentStepIndex))
		return
	}
	advance(d, len(d.actions) == 0)
}

// restoreHold puts back a hold that is not there or not whole.
func restoreHold(d *draft) {
	why := "release of " + d.goal.name
	if !d.touched() { // it was parked: no deadline ran
		d.status.ProgressTime, d.status.BestAvailableReplicas = d.time(), 0
	} else {
		why = "the hold was changed by another field manager"
		d.warn(ReasonDriftCorrected, "template, strategy or paused of the held Deployment were changed; the hold is put back")
	}
	takeHold(d, why)
	d.report(ReasonTakingHold, "keeping the native controller off for "+d.goal.name)
}

// handBack ends the hold, and keeps the template that the Deployment then has:
// admission may change it with the write.
func (d *draft) handBack(why because, template *corev1.PodTemplateSpec) {
	endHold(d, why, d.strategy, template)
	if len(d.records) == 0 {
		return
	}
	record := d.records[0]
	if g := d.goal; g != nil && (template == nil || g.equal(template)) {
		record = d.recordOf(g, 0)
		if g.record != nil {
			record = *g.record
		}
	}
	record.Order = d.newest() + 1
	d.do(Remember{because: why, Record: record, Written: true})
}

// newest is the order of the newest record once the actions so far are made.
func (d *draft) newest() int64 {
	var order int64
	if len(d.records) > 0 {
		order = d.records[0].Order
	}
	for _, a := range d.actions {
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
func endHold(d *draft, why because, strategy appsv1.DeploymentStrategy, template *corev1.PodTemplateSpec) {
	var active []*appsv1.ReplicaSet
	for _, rs := range d.ReplicaSets {
		if size(rs) > 0 {
			active = append(active, rs)
		}
	}
	for _, rs := range active {
		safe := len(active) == 1 || !plan.EqualTemplate(&rs.Spec.Template, &d.Deployment.Spec.Template)
		if safe && size(rs) == d.replicas && !hasSizeAnnotations(rs, d.replicas, d.replicas+d.surge) {
			d.do(Resize{because: why, ReplicaSet: rs, To: d.replicas, Desired: d.replicas, Max: d.replicas + d.surge})
		}
	}
	d.do(HandBack{because: why, Strategy: strategy, Template: template})
}
