package plan

import (
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tranche-dev/tranche/plan/measure"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Full is the replicas of a last step.
var Full = intstr.FromString("100%")

// ParseReplicas returns the number of a step's replicas field, and whether it is a
// percentage. Only a whole number from 1 and a percentage from 1% to 100% written without
// leading zeros are valid. "5", "150%" or "099%" are mistakes, and a mistake is neither
// zero nor everything.
func ParseReplicas(r intstr.IntOrString) (n int32, percent bool, err error) {
	if r.Type == intstr.Int {
		if r.IntVal < 1 {
			return 0, false, fmt.Errorf("%d: must be at least 1", r.IntVal)
		}
		return r.IntVal, false, nil
	}
	p, err := parsePercent(r.StrVal)
	if err != nil {
		return 0, false, err
	}
	if p < 1 || p > 100 {
		return 0, false, fmt.Errorf("%q: a percentage must be from 1%% to 100%%", r.StrVal)
	}
	return p, true, nil
}

func parsePercent(s string) (int32, error) {
	bad := fmt.Errorf("%q: must be a number, or a percentage such as 25%%", s)
	if len(s) < 2 || len(s) > 4 || s[len(s)-1] != '%' {
		return 0, bad
	}
	digits := s[:len(s)-1]
	p, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || strconv.FormatUint(p, 10) != digits {
		return 0, bad
	}
	return int32(p), nil
}

// Limit returns how many of n pods may run the update revision at a step with these
// replicas. A percentage is ceil(percent·n), never above n, and never all of them below
// 100% unless n is 1. So 1% of 2 and 99% of 2 are both 1. A number is itself, or n if n
// is smaller. It is 0 only if n is 0.
//
// The replicas must be valid ([ParseReplicas]); others count as nothing
// allowed, which is 0.
func Limit(r intstr.IntOrString, n int32) int32 {
	v, percent, err := ParseReplicas(r)
	if err != nil || n <= 0 {
		return 0
	}
	if !percent {
		return min(v, n)
	}
	limit := int32((int64(v)*int64(n) + 99) / 100)
	if v < 100 && limit == n && n > 1 {
		limit = n - 1
	}
	return limit
}

// Target returns how many of n pods may run the update revision once step i is done.
// Steps never go down. A plan that mixes numbers and percentages can be out of order at
// the n of the moment, and the highest so far counts.
func Target(steps []v1alpha1.Step, i int, n int32) int32 {
	var target int32
	for _, s := range steps[:i+1] {
		target = max(target, Limit(s.Replicas, n))
	}
	return target
}

// RollbackSteps returns the steps of the way back: those of the plan, else one
// pod and then all. No gate of them waits.
func RollbackSteps(s *v1alpha1.BatchStrategy) []v1alpha1.Step {
	back := []v1alpha1.RollbackStep{{Replicas: intstr.FromInt32(1)}, {Replicas: Full}}
	if s.Rollback != nil {
		back = s.Rollback.Steps
	}
	steps := make([]v1alpha1.Step, len(back))
	for i, b := range back {
		steps[i] = v1alpha1.Step{Replicas: b.Replicas, Pause: &v1alpha1.Pause{}}
	}
	return steps
}

// Bounds returns how many pods a Deployment of n may have above n (surge) and may lack
// below n (unavailable). It computes them as
// k8s.io/kubernetes/pkg/controller/deployment/util.ResolveFenceposts does. Surge is
// rounded up, unavailable down, and if both are 0, unavailable is 1. A nil strategy, or
// one without rollingUpdate, has the API server's defaults of 25%.
func Bounds(s *appsv1.DeploymentStrategy, n int32) (surge, unavailable int32, err error) {
	maxSurge, maxUnavailable := intstr.FromString("25%"), intstr.FromString("25%")
	if s != nil && s.RollingUpdate != nil {
		if s.RollingUpdate.MaxSurge != nil {
			maxSurge = *s.RollingUpdate.MaxSurge
		}
		if s.RollingUpdate.MaxUnavailable != nil {
			maxUnavailable = *s.RollingUpdate.MaxUnavailable
		}
	}
	up, err := intstr.GetScaledValueFromIntOrPercent(&maxSurge, int(n), true)
	if err != nil {
		return 0, 0, fmt.Errorf("maxSurge: %w", err)
	}
	down, err := intstr.GetScaledValueFromIntOrPercent(&maxUnavailable, int(n), false)
	if err != nil {
		return 0, 0, fmt.Errorf("maxUnavailable: %w", err)
	}
	if up == 0 && down == 0 {
		down = 1
	}
	return int32(up), min(int32(down), n), nil
}

// ValidateStrategy checks a plan as far as that is possible without knowing how many
// replicas there are. It checks every replicas field by itself, that the last step is
// 100%, and that steps of the same kind do not go down.
func ValidateStrategy(s *v1alpha1.BatchStrategy, at *field.Path) field.ErrorList {
	steps := make([]intstr.IntOrString, len(s.Steps))
	var errs field.ErrorList
	for i, step := range s.Steps {
		steps[i] = step.Replicas
		if step.Pause == nil {
			continue
		}
		where := at.Child("steps").Index(i).Child("pause")
		switch {
		case i == len(s.Steps)-1:
			errs = append(errs, field.Forbidden(where, "the last step has no gate"))
		case step.Pause.Duration.Duration < 0:
			errs = append(errs, field.Invalid(where.Child("duration"), step.Pause.Duration.Duration.String(), "must not be negative"))
		}
	}
	errs = append(errs, validateSteps(steps, at.Child("steps"))...)
	if s.Rollback != nil {
		back := make([]intstr.IntOrString, len(s.Rollback.Steps))
		for i, step := range s.Rollback.Steps {
			back[i] = step.Replicas
		}
		errs = append(errs, validateSteps(back, at.Child("rollback", "steps"))...)
	}
	if d := s.ProgressDeadlineSeconds; d != nil && *d < 1 {
		errs = append(errs, field.Invalid(at.Child("progressDeadlineSeconds"), *d, "must be at least 1"))
	}
	if f := s.OnFailure; f != "" && f != v1alpha1.FailureHold && f != v1alpha1.FailureRollback {
		errs = append(errs,
			field.NotSupported(at.Child("onFailure"), f, []v1alpha1.FailurePolicy{v1alpha1.FailureHold, v1alpha1.FailureRollback}))
	}
	return append(errs, measure.Validate(s, at)...)
}

func validateSteps(steps []intstr.IntOrString, at *field.Path) field.ErrorList {
	if len(steps) == 0 {
		return field.ErrorList{field.Required(at, "at least one step, the last of 100%")}
	}
	var errs field.ErrorList
	last := map[bool]int32{}
	for i, r := range steps {
		where := at.Index(i).Child("replicas")
		v, percent, err := ParseReplicas(r)
		if err != nil {
			errs = append(errs, field.Invalid(where, r.String(), err.Error()))
			continue
		}
		if v < last[percent] {
			errs = append(errs, field.Invalid(where, r.String(), "below an earlier step; steps may stay or go up"))
		}
		last[percent] = max(last[percent], v)
	}
	if steps[len(steps)-1] != Full {
		errs = append(errs, field.Invalid(at.Index(len(steps)-1).Child("replicas"), steps[len(steps)-1].String(), "the last step must be 100%"))
	}
	return errs
}

// ValidateSteps checks that the steps of a plan do not go down at n replicas. Plans that
// mix numbers and percentages can only be put in order at the real n.
func ValidateSteps(steps []v1alpha1.Step, n int32, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	highest, of := int32(0), 0
	for i, s := range steps {
		limit := Limit(s.Replicas, n)
		if limit < highest {
			errs = append(errs, field.Invalid(at.Index(i).Child("replicas"), s.Replicas.String(),
				fmt.Sprintf("of %d is %d, below the %d of step %d; steps may stay or go up", n, limit, highest, of)))
		}
		if limit > highest {
			highest, of = limit, i
		}
	}
	return errs
}
