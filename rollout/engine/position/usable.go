package position

import (
	"cmp"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Unusable says what is wrong with what is to be released, with the plan, or with the
// Deployment's strategy.
func Unusable(c *Course) (reason, message string) {
	if c.Refused != nil {
		return cmp.Or(c.RefusedReason, v1alpha1.ReasonTemplateRefused), c.Refused.Error()
	}
	if errs := plan.ValidateStrategy(&c.Spec.Strategy, field.NewPath("spec", "strategy")); len(errs) > 0 {
		return v1alpha1.ReasonInvalidPlan, errs.ToAggregate().Error()
	}
	if c.BadBounds != nil {
		return v1alpha1.ReasonUnsupportedStrategy, "Deployment " + c.Deployment.Name + ": spec.strategy: " + c.BadBounds.Error()
	}
	if c.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return v1alpha1.ReasonUnsupportedStrategy, fmt.Sprintf("Deployment %s: spec.strategy.type: %s cannot be released in "+
			"batches; use RollingUpdate, or remove the plan", c.Deployment.Name, c.Strategy.Type)
	}
	return "", ""
}
