package outcome

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

const (
	// AtOnce is when to sync after a write that was decided on an older version, or for the
	// end of a hold.
	AtOnce = 500 * time.Millisecond
	// RetryWithin is when to sync, at the latest, after a problem that may
	// pass by itself.
	RetryWithin = 15 * time.Second
	// PushWithin is when to try again, at the latest, what could not be pushed.
	PushWithin = 5 * time.Minute
	// rightsWithin is when to try again, at the latest, what an account may not do. The
	// API server sends no event when a right is given, and one that starts refuses before
	// it has read the rights.
	rightsWithin = 5 * time.Minute
	// jitter spreads syncs: 5 % to both sides.
	jitter = 0.05
)

// Next returns how long what is applied may be left alone.
func (o *Outcome) Next(gs *v1alpha1.GitSource) time.Duration {
	mayPass := func(p *plan.Problem) bool { return p.Retry }
	isForbidden := func(p *plan.Problem) bool { return p.Reason == v1alpha1.ReasonForbidden }
	problems := slices.Concat(o.Problems, o.MaintenanceErrors)
	next := gs.Spec.IntervalOrDefault()
	if slices.ContainsFunc(problems, mayPass) {
		next = min(next, RetryWithin)
	}
	if slices.ContainsFunc(problems, isForbidden) {
		next = min(next, Patience(gs, v1alpha1.ConditionReady, rightsWithin))
	}
	if retry := gs.Spec.RetryInterval; retry != nil && len(problems) > 0 {
		next = retry.Duration
	}
	if slices.ContainsFunc(o.Intents, mayPass) {
		next = min(next, Patience(gs, v1alpha1.ConditionInSync, PushWithin))
	}
	if wait := o.LimitedFor(gs); wait > 0 {
		return max(next, wait) + time.Duration(jitter*rand.Float64()*float64(wait)) // never earlier
	}
	if due := o.Contested; !due.IsZero() {
		return min(jittered(next), max(time.Until(due), AtOnce))
	}
	return jittered(next)
}

// Patience returns when to check a source again for what has been waited for since a condition
// changed. That is soon at first, and less often the longer it takes.
func Patience(gs *v1alpha1.GitSource, condition string, most time.Duration) time.Duration {
	since := meta.FindStatusCondition(gs.Status.Conditions, condition)
	if since == nil {
		return AtOnce
	}
	return min(max(AtOnce, time.Since(since.LastTransitionTime.Time)/4), most)
}

// LimitedFor returns how long the server that limits requests is left alone; 0 where none
// does. Without a time of its own, it is asked less and less often.
func (o *Outcome) LimitedFor(gs *v1alpha1.GitSource) time.Duration {
	for _, p := range o.Problems {
		if limit, ok := errors.AsType[*gitserver.RateLimit](p.Err); ok {
			return max(limit.After, Patience(gs, v1alpha1.ConditionReady, PushWithin))
		}
	}
	return 0
}

func jittered(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (1 - jitter + 2*jitter*rand.Float64()))
}
