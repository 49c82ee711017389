package engine

import (
	"cmp"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// refusePlan is about a plan, or what it brings, that cannot be used. It is left when
// unusable finds nothing wrong any more.
func refusePlan(d *draft, reason, message string) {
	if d.Refused != nil {
		d.wait = refusedInterval
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
	if reason == v1alpha1.ReasonInvalidPlan {
		d.course = d.by(v1alpha1.BatchStrategy{Steps: []v1alpha1.Step{{Replicas: plan.Full}}}) // there is no step to enter
	}
	standStill(d)
	if reason == v1alpha1.ReasonInvalidPlan && d.status.CurrentStepState == v1alpha1.StepInitial {
		d.status.CurrentStepReplicas, d.status.OpenedReplicas = nil, nil // decideInitial enters the first one
	}
}

// unusable says what is wrong with what is to be released, with the plan, or with the
// Deployment's strategy.
func unusable(c *course) (reason, message string) {
	if c.Refused != nil {
		return cmp.Or(c.RefusedReason, v1alpha1.ReasonTemplateRefused), c.Refused.Error()
	}
	if errs := plan.ValidateStrategy(&c.spec.Strategy, field.NewPath("spec", "strategy")); len(errs) > 0 {
		return v1alpha1.ReasonInvalidPlan, errs.ToAggregate().Error()
	}
	if c.badBounds != nil {
		return v1alpha1.ReasonUnsupportedStrategy, "Deployment " + c.Deployment.Name + ": spec.strategy: " + c.badBounds.Error()
	}
	if c.strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return v1alpha1.ReasonUnsupportedStrategy, fmt.Sprintf("Deployment %s: spec.strategy.type: %s cannot be released in batches; use RollingUpdate, or remove the plan", c.Deployment.Name, c.strategy.Type)
	}
	return "", ""
}
