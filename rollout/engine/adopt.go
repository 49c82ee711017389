package engine

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/action"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
)

// adoptRunning takes what runs for stable: at first sight, and of a Deployment that
// has replaced one of the same name. Under a hold whose records were lost,
// StableUnderHold finds it.
//
// A native rollout that is under way is waited for: its template has not proved good. If
// spec.template brings another one meanwhile, the revision with the most available pods
// is stable. Otherwise the release would wait for ever behind a rollout that is stuck.
// adopt reports false if that is on record already.
func adoptRunning(d *draft) bool {
	template, why := &d.Deployment.Spec.Template, "it is what runs"
	if d.Touched() {
		if template, why = d.StableUnderHold(); template == nil {
			awaitRecords(d)
			return true
		}
	}
	d.Status = v1alpha1.BatchReleaseStatus{
		History: d.Status.History, EndedReleases: d.Status.EndedReleases, Conditions: d.Status.Conditions,
		Reason: d.Status.Reason, ReasonTime: d.Status.ReasonTime, LastUpdateTime: d.Status.LastUpdateTime,
	}
	switch {
	case d.Touched():
		// Fails where the Deployment is not as observed: handed back, its template is stable.
		live := &d.Deployment.Spec.Template
		d.do(Hold{Why: "the records of the hold were lost", Template: live, Revision: facts.RevisionOf(d.Observed, live).Name})
	case d.RollingNatively() && (d.Spec.Template == nil || d.Brings(&d.Deployment.Spec.Template)):
		awaitNative(d)
		return true
	case d.RollingNatively():
		template = d.MostOf(func(rs *appsv1.ReplicaSet) int32 { return rs.Status.AvailableReplicas })
	}
	if len(d.StableRecords) > 0 && plan.EqualTemplate(template, d.StableRecords[0].Template) {
		return false
	}
	r := facts.RevisionOf(d.Observed, template)
	record := d.RecordOf(r, 1)
	record.Sent = ""
	if d.Brings(template) {
		record.Sent = plan.TemplateDigest(d.Spec.Template)
	}
	if len(d.StableRecords) > 0 {
		r.ID = record.Sent
		d.Course = d.To(r)
		rememberGoal(d)
	} else {
		d.do(Remember{Why: action.Why(why), Record: record})
	}
	d.report(v1alpha1.ReasonTakingHold, "looking at "+r.Name+" for the first time")
	return true
}

// awaitNative is about a Deployment that nothing of ours has touched, and that the
// native controller is rolling out. It is left when that has finished.
func awaitNative(d *draft) {
	d.unreleased = true
	s := &d.Deployment.Status
	message := fmt.Sprintf("the native rollout has not finished: %d of %d pods are updated and %d available", s.UpdatedReplicas,
		d.Replicas, s.AvailableReplicas)
	if d.unready = true; d.Pods != nil && d.Pods.Cause != "" {
		message += ": " + d.Pods.Cause
	}
	if d.Deployment.Spec.Paused {
		message += "; the Deployment is paused, and goes on after kubectl rollout resume"
	}
	for _, c := range s.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse {
			d.stall(v1alpha1.ReasonNativeRollout, message+": "+c.Message)
			return
		}
	}
	d.report(v1alpha1.ReasonNativeRollout, message)
}
