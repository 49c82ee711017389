package engine

import (
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// refusePlan is about a plan, or what it brings, that cannot be used. It is left when
// unusable finds nothing wrong any more.
func refusePlan(d *draft, reason, message string) {
	if d.Refused != nil {
		observeApproval(d) // it is for the steps that are there when it is first seen
	}
	followReplicas(d)
	told := d.status.Reason == reason
	nameRefused(d, reason)
	if !told {
		d.warn(reason, message)
	}
	d.stall(reason, message)
}

// nameRefused makes the status one of the release that spec brings, where the Deployment
// is native. The steps of the release that ended before would be read as those of this
// one, which has not begun.
func nameRefused(d *draft, reason string) {
	if len(d.records) == 0 || d.touched() || d.status.Phase == "" || d.spec.Template == nil {
		return
	}
	d.course = d.resolve(&d.status)
	if d.brought == nil { // its name is known once the API server completes it
		d.course = d.bringing(&revision{id: plan.TemplateDigest(d.spec.Template), sent: d.spec.Template, template: d.spec.Template})
		if !d.failed() {
			d.course = d.to(d.brought)
		}
	}
	if reason == ReasonInvalidPlan {
		d.course = d.by(v1alpha1.BatchStrategy{Steps: []v1alpha1.Step{{Replicas: plan.Full}}}) // there is no step to enter
	}
	standStill(d)
	if reason == ReasonInvalidPlan && d.status.CurrentStepState == v1alpha1.StepInitial {
		d.status.CurrentStepReplicas, d.status.OpenedReplicas = nil, nil // decideInitial enters the first one
	}
}

// standStill makes the status one of the release that spec brings, and moves nothing. One that
// has not begun, and that spec does not bring any more, ends.
func standStill(d *draft) {
	switch {
	case d.underWay():
	case d.forward():
		beginRelease(d)
	case releasing(&d.status) && d.idle():
		completeRelease(d)
	}
}
