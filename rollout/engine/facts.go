package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/plan"
)

// facts are what was observed, sorted out once: nothing of them changes in a round.
type facts struct {
	*Observed
	now time.Time

	records   []Record // of what has been stable, newest first
	releasing []Record // of what is being released
	outdated  []Record // of what is on record as it is now, too

	replicas, surge, unavailable int32
	// strategy to hand back.
	strategy appsv1.DeploymentStrategy
	// badBounds is why strategy is not usable; nil: it is. The bounds are then those of the
	// API server's default strategy.
	badBounds error
}

func newFacts(o *Observed, now time.Time) *facts {
	f := &facts{Observed: o, now: now}
	for _, r := range newestFirst(o.Records) {
		again := func(newer Record) bool { return r.Sent != "" && newer.Sent == r.Sent }
		switch {
		case r.Order == 0:
			f.releasing = append(f.releasing, r)
		case slices.ContainsFunc(f.records, again): // admission has made another template of it since
			f.outdated = append(f.outdated, r)
		default:
			f.records = append(f.records, r)
		}
	}
	if o.Deployment == nil {
		return f
	}
	f.replicas = replicas(o.Deployment)
	f.strategy = manifestStrategy(o, f.records)
	if f.surge, f.unavailable, f.badBounds = plan.Bounds(&f.strategy, f.replicas); f.badBounds != nil {
		f.surge, f.unavailable, _ = plan.Bounds(nil, f.replicas)
		return f
	}
	f.badBounds = refusedBounds(f.strategy.RollingUpdate)
	return f
}

// recordSent returns the record of what was sent as this: of what is being released before
// what was stable. It is nil without one.
func (f *facts) recordSent(digest string) *Record {
	if record := f.releasingOf(func(r *Record) bool { return r.Sent == digest }); record != nil {
		return record
	}
	if i := slices.IndexFunc(f.records, func(r Record) bool { return r.Sent == digest }); i >= 0 {
		return &f.records[i]
	}
	return nil
}

// recorded returns the revision of the i-th newest record of what was stable, nil
// without one. Admission may have changed the template since: then a record of
// what is being released has the same origin, and the template of today. Not where the
// Deployment has the stable one: then the other one is left from before.
func (f *facts) recorded(i int) *revision {
	if i >= len(f.records) {
		return nil
	}
	r := revisionOfRecord(f.Observed, &f.records[i])
	if r.equal(&f.Deployment.Spec.Template) {
		return r
	}
	if released := f.releasingOf(func(other *Record) bool { return other.Sent == r.id }); released != nil {
		return revisionOfRecord(f.Observed, released)
	}
	return r
}

// releasingOf returns a record of what is being released: of several, the one that
// the Deployment has.
func (f *facts) releasingOf(is func(*Record) bool) *Record {
	var found *Record
	for i := range f.releasing {
		if r := &f.releasing[i]; is(r) && (found == nil || plan.EqualTemplate(r.Template, &f.Deployment.Spec.Template)) {
			found = r
		}
	}
	return found
}

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
		return completeStrategy(o.Release.Spec.DeploymentStrategy)
	case !touched(o.Deployment, len(o.Records) > 0):
		return o.Deployment.Spec.Strategy
	case len(records) > 0 && records[0].Strategy != nil:
		return *records[0].Strategy
	}
	return completeStrategy(&appsv1.DeploymentStrategy{})
}

// completeStrategy fills in what the API server would.
func completeStrategy(s *appsv1.DeploymentStrategy) appsv1.DeploymentStrategy {
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

func (f *facts) time() *metav1.Time { return &metav1.Time{Time: f.now} }
