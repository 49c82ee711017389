package facts

import (
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// refusedBounds returns why the API server would not take the bounds on a Deployment.
// While that is held they are only in the plan: it sees them at the hand-back.
func refusedBounds(r *appsv1.RollingUpdateDeployment) error {
	if r == nil || r.MaxSurge == nil || r.MaxUnavailable == nil {
		return nil
	}
	surge, _ := intstr.GetScaledValueFromIntOrPercent(r.MaxSurge, 100, false) // a percentage by its number
	unavailable, _ := intstr.GetScaledValueFromIntOrPercent(r.MaxUnavailable, 100, false)
	switch {
	case surge < 0, unavailable < 0:
		return fmt.Errorf("rollingUpdate: maxSurge %s and maxUnavailable %s may not be negative", r.MaxSurge, r.MaxUnavailable)
	case r.MaxUnavailable.Type == intstr.String && unavailable > 100:
		return fmt.Errorf("rollingUpdate: maxUnavailable may not be more than 100%%, and is %s", r.MaxUnavailable)
	case surge == 0 && unavailable == 0:
		return errors.New("rollingUpdate: maxSurge and maxUnavailable may not both be 0; raise one of them")
	}
	return nil
}

// manifestStrategy is the strategy that Git names. Else it is the live one, unless that
// is the hold's, else the one on record, else the API server's default.
func manifestStrategy(o *Observed, records []Record) appsv1.DeploymentStrategy {
	switch {
	case o.Release.Spec.DeploymentStrategy != nil:
		return CompleteStrategy(o.Release.Spec.DeploymentStrategy)
	case !touched(o.Deployment, len(o.Records) > 0):
		return o.Deployment.Spec.Strategy
	case len(records) > 0 && records[0].Strategy != nil:
		return *records[0].Strategy
	}
	return CompleteStrategy(&appsv1.DeploymentStrategy{})
}

// CompleteStrategy fills in what the API server would.
func CompleteStrategy(s *appsv1.DeploymentStrategy) appsv1.DeploymentStrategy {
	c := *s.DeepCopy()
	if c.Type == "" {
		c.Type = appsv1.RollingUpdateDeploymentStrategyType
	}
	if c.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return c
	}
	if c.RollingUpdate == nil {
		c.RollingUpdate = &appsv1.RollingUpdateDeployment{}
	}
	if c.RollingUpdate.MaxSurge == nil {
		c.RollingUpdate.MaxSurge = ptr.To(intstr.FromString("25%"))
	}
	if c.RollingUpdate.MaxUnavailable == nil {
		c.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromString("25%"))
	}
	return c
}

// EqualStrategy compares two strategies as the API server completes them.
func EqualStrategy(a, b appsv1.DeploymentStrategy) bool {
	return equality.Semantic.DeepEqual(CompleteStrategy(&a), CompleteStrategy(&b))
}

// IsNativeDrift reports whether strategy or paused of a native Deployment are not those of
// the manifest.
func (f *Facts) IsNativeDrift() bool {
	return f.Release.Spec.DeploymentStrategy != nil && (f.Deployment.Spec.Paused || !EqualStrategy(f.Deployment.Spec.Strategy, f.Strategy))
}
