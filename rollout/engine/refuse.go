package engine

import (
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
)

// refusePlan is about a plan, or what it brings, that cannot be used. It is left when
// [Unusable] finds nothing wrong any more.
func refusePlan(d *draft, reason, message string) {
	if d.Refused != nil {
		d.wait = refusedInterval
		observeApproval(d) // it is for the steps that are there when it is first seen
	}
	followReplicas(d)
	told := d.Status.Reason == reason
	nameRefused(d, reason)
	if !told {
		d.warn(reason, message)
	}
	d.stall(reason, message)
}

// nameRefused makes the status one of the release that spec brings, where the Deployment is native. The
// steps of the release that ended before would be read as those of this one, which has not begun.
func nameRefused(d *draft, reason string) {
	if len(d.StableRecords) == 0 || d.Touched() || d.Status.Phase == "" || d.Spec.Template == nil {
		return
	}
	d.Course = d.Resolve(&d.Status)
	if d.Brought == nil { // its name is known once the API server completes it
		d.Course = d.Bringing(&facts.Revision{ID: plan.TemplateDigest(d.Spec.Template), Sent: d.Spec.Template, Template: d.Spec.Template})
		if !d.Failed() {
			d.Course = d.To(d.Brought)
		}
	}
	if reason == v1alpha1.ReasonInvalidPlan {
		d.Course = d.By(v1alpha1.BatchStrategy{Steps: []v1alpha1.Step{{Replicas: plan.Full}}}) // there is no step to enter
	}
	standStill(d)
	if reason == v1alpha1.ReasonInvalidPlan && d.Status.CurrentStepState == v1alpha1.StepInitial {
		d.Status.CurrentStepReplicas, d.Status.OpenedReplicas = nil, nil // decideInitial enters the first one
	}
}
