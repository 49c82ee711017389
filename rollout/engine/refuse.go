package engine

import (
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// refuse is about a plan, or what it brings, that cannot be used. It is left when
// unusable finds nothing wrong any more.
func (v *view) refuse(reason, message string) {
	if v.Refused != nil {
		v.observeApproval() // it is for the steps that are there when it is first seen
	}
	v.follow()
	told := v.status.Reason == reason
	v.nameRefused(reason)
	if !told {
		v.warn(reason, message)
	}
	v.stall(reason, message)
}

// nameRefused makes the status one of the release that spec brings, where the Deployment
// is native. The steps of the release that ended before would be read as those of this
// one, which has not begun.
func (v *view) nameRefused(reason string) {
	if len(v.records) == 0 || v.touched() || v.status.Phase == "" || v.spec.Template == nil {
		return
	}
	v.resolve()
	if v.brought == nil { // its name is known once the API server completes it
		v.brought = &revision{id: plan.TemplateDigest(v.spec.Template), sent: v.spec.Template, template: v.spec.Template}
		if !v.failed() {
			v.goal = v.brought
		}
	}
	if reason == ReasonInvalidPlan {
		v.spec = v.spec.DeepCopy() // there is no step to enter
		v.spec.Strategy = v1alpha1.BatchStrategy{Steps: []v1alpha1.Step{{Replicas: plan.Full}}}
	}
	v.stand()
	if reason == ReasonInvalidPlan && v.status.CurrentStepState == v1alpha1.StepInitial {
		v.status.CurrentStepReplicas, v.status.OpenedReplicas = nil, nil // decideInitial enters the first one
	}
}

// stand makes the status one of the release that spec brings, and moves nothing. One that
// has not begun, and that spec does not bring any more, ends.
func (v *view) stand() {
	switch {
	case v.underWay():
	case v.forward():
		v.begin()
	case releasing(&v.status) && v.idle():
		v.complete()
	}
}
