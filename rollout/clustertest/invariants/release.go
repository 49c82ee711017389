package invariants

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// releases are those that spec has brought, in the order of their last appearance in it.
type releases struct {
	ns  *namespace
	all []*release
}

func (l *releases) current() *release {
	if n := len(l.all); n > 0 && l.all[n-1].until.IsZero() {
		return l.all[n-1]
	}
	return nil
}

// lately returns the releases that spec has brought within lag, the newest first.
func (l *releases) lately() []*release {
	var found []*release
	for _, r := range slices.Backward(l.all) {
		if r.until.IsZero() || l.ns.now.Sub(r.until) <= lag {
			found = append(found, r)
		}
	}
	return found
}

// stop notes that spec brings the current release no more.
func (l *releases) stop() {
	if r := l.current(); r != nil {
		r.until = l.ns.now
	}
}

// act notes that the controller has begun a release, and so ended all others.
func (l *releases) act(r *release) {
	r.acted = true
	if r != l.current() {
		return
	}
	for _, other := range l.all {
		if other != r && other.acted {
			other.ended = true
		}
	}
}

// release is one template by one commit.
type release struct {
	commit     string
	template   *corev1.PodTemplateSpec          // as in spec
	generation int64                            // of the spec that brought it
	until      time.Time                        // when spec stopped to say so; zero while it does
	covered    map[*corev1.PodTemplateSpec]bool // what covers said
	// admitted are templates that admission made of it.
	admitted []*corev1.PodTemplateSpec
	// names are those of its ReplicaSets, of deleted ones too.
	names map[string]bool
	// acted: the controller held the Deployment at this release's template.
	acted bool
	// ended: the controller went on to another release. Once spec brings this one
	// again, no approval counts for it.
	ended, spent bool
	// closed: the plan was deleted, and its memory with it.
	closed bool
	// midway: it brings back the last stable template in the middle of another
	// release, so it is gated. unsure: perhaps it does.
	midway, unsure bool
	// rollback: a user asked for a rollback.
	rollback bool

	opened    []intstr.IntOrString // the steps that gates have opened; none before the first
	position  int                  // the step whose gate is next
	entered   time.Time            // when the gate before it opened
	waits     map[int]*wait
	approvals []*approval
	completed int // the step that a user completed in status; -1 for none
	completes []intstr.IntOrString
}

// wait is a step at its gate: since when its pods are available.
type wait struct {
	since  time.Time
	target int32
	full   time.Time // when all of them were last available
	low    time.Time // since when too few are
}

// see takes the times since when pods are available, and reports whether the step waits at
// its gate. Its pods came after the gate before it opened. Too few of them may be
// available for a moment.
func (w *wait) see(times []time.Time, target, low int32, entered, now time.Time) bool {
	switch available := int32(len(times)); {
	case available >= target:
		if w.since.IsZero() {
			w.since = entered
			if target > 0 && times[target-1].After(w.since) {
				w.since = times[target-1]
			}
		}
		w.target, w.full, w.low = target, now, time.Time{}
	case w.since.IsZero():
		return false
	case available >= low:
		w.low = time.Time{}
	case w.low.IsZero():
		w.low = now
	case now.Sub(w.low) > lag:
		*w = wait{}
		return false
	}
	return now.Sub(w.full) <= lag
}

// approval is spec.approval as it was given.
type approval struct {
	v1alpha1.Approval
	generation int64
	seen       bool // the controller says so
	until      time.Time
	plans      [][]intstr.IntOrString // that it may be for, where it names no steps
}

// pauseSlack is how much shorter than its duration a pause may look: times in status
// and in pods are in whole seconds.
const pauseSlack = 2 * time.Second

func newRelease(o *v1alpha1.BatchRelease, now time.Time) *release {
	return &release{
		commit: o.Spec.Commit, template: o.Spec.Template, completed: -1, entered: now,
		waits: map[int]*wait{}, covered: map[*corev1.PodTemplateSpec]bool{}, names: map[string]bool{},
	}
}

// broughtBy reports whether spec brings the release.
func (r *release) broughtBy(o *v1alpha1.BatchRelease) bool {
	return r.commit == o.Spec.Commit && equality.Semantic.DeepEqual(r.template, o.Spec.Template)
}

// matches reports whether a template of the API server is that of the release. It has all
// that spec says, or admission made it of that.
func (r *release) matches(t *corev1.PodTemplateSpec) bool {
	has, known := r.covered[t]
	if !known {
		has = covers(t, r.template)
		r.covered[t] = has
	}
	return has || slices.ContainsFunc(r.admitted, func(a *corev1.PodTemplateSpec) bool { return plan.EqualTemplate(a, t) })
}

// waitAt returns the wait at the gate of step i.
func (r *release) waitAt(i int) *wait {
	if r.waits[i] == nil {
		r.waits[i] = &wait{}
	}
	return r.waits[i]
}

// allowed returns how many pods the gates of a release let run, at the largest of
// these replicas. Before the first gate it is the first step of one of these plans.
func (r *release) allowed(plans [][]v1alpha1.Step, replicas []int32) int32 {
	values := r.opened
	if len(values) == 0 {
		for _, steps := range plans {
			values = append(slices.Clone(values), steps[0].Replicas)
		}
	}
	var limit int32
	for _, n := range replicas {
		limit = max(limit, most(values, n))
	}
	return limit
}

// whole reports whether the gates let all pods run the release, at any N.
func (r *release) whole(steps []v1alpha1.Step) bool {
	return slices.Contains(r.opened, plan.Full) || len(r.opened) == 0 && len(steps) > 0 && steps[0].Replicas == plan.Full
}

func most(values []intstr.IntOrString, n int32) int32 {
	var limit int32
	for _, v := range values {
		limit = max(limit, plan.Limit(v, n))
	}
	return limit
}

func (r *release) open(values ...intstr.IntOrString) {
	for _, v := range values {
		if !slices.Contains(r.opened, v) {
			r.opened = append(r.opened, v)
		}
	}
}

// recordCompleted notes an approval that a user wrote to the status. It is for the
// step that the status showed, and for no step beyond the next gate.
func (r *release) recordCompleted(o, before *v1alpha1.BatchRelease) {
	s := &o.Status
	if before == nil || before.Status.CurrentStepState == v1alpha1.StepCompleted || s.CurrentStepState != v1alpha1.StepCompleted ||
		s.ObservedGeneration < r.generation {
		return
	}
	for _, e := range o.ManagedFields {
		if e.Manager != v1alpha1.ManagerRollout && e.Manager != v1alpha1.ManagerGitSync && owns(e, "f:status", "f:currentStepState") {
			r.completed, r.completes = min(int(s.CurrentStepIndex), r.position), plan.StepReplicas(o.Spec.Strategy.Steps)
		}
	}
}

// approved reports whether spec.approval opens the gate of step i (I5).
func (r *release) approved(d *deployment, steps []intstr.IntOrString, i int, now time.Time) bool {
	return r.given(d, steps, i, now, func(*approval) bool { return true })
}

// overridden reports whether an override is given for step i alone.
func (r *release) overridden(d *deployment, steps []intstr.IntOrString, i int, now time.Time) bool {
	return r.given(d, steps, i, now, func(a *approval) bool { return a.Override != nil && int(a.Step) == i })
}

// given reports whether an approval of step i, of that kind, is given.
func (r *release) given(d *deployment, steps []intstr.IntOrString, i int, now time.Time, kind func(*approval) bool) bool {
	return slices.ContainsFunc(r.approvals, func(a *approval) bool {
		return kind(a) && (a.until.IsZero() || now.Sub(a.until) <= lag) && r.isFor(d, &a.Approval) && int(a.Step) >= i &&
			slices.ContainsFunc(a.of(), func(approved []intstr.IntOrString) bool { return sameSteps(approved, steps, i+1) })
	})
}

// of are the plans that an approval may be for.
func (a *approval) of() [][]intstr.IntOrString {
	if len(a.Steps) > 0 {
		return [][]intstr.IntOrString{a.Steps}
	}
	return a.plans
}

// isFor reports whether an approval names a release, by revision and commit.
func (r *release) isFor(d *deployment, a *v1alpha1.Approval) bool {
	if a.Commit != r.commit && (len(a.Commit) < shortestCommit || !strings.HasPrefix(r.commit, a.Commit)) {
		return false
	}
	if ptr.Deref(d.Status.CollisionCount, 0) > 0 {
		return true // after a collision the ReplicaSet has another name than the one that was shown
	}
	return r.names[a.Revision] || len(r.names) == 0 // before its ReplicaSet is there, the name is not known
}

// shortestCommit is how many characters of a commit name it.
const shortestCommit = 7

// sameSteps reports whether two plans are equal up to a step, or to their end.
func sameSteps(a, b []intstr.IntOrString, upTo int) bool {
	upTo = min(upTo, len(b)-1)
	return len(a) > upTo && slices.Equal(a[:upTo+1], b[:upTo+1])
}

// String is what a breach says of a release.
func (r *release) String() string {
	opened := "no gate has opened"
	if len(r.opened) > 0 {
		var values []string
		for _, v := range r.opened {
			values = append(values, v.String())
		}
		opened = "gates opened the steps " + strings.Join(values, ", ")
	}
	return fmt.Sprintf("release %.12q: %s", r.commit, opened)
}

// limitOf returns how many pods of a template the gates allow, and how many they did
// before the first one opened. It is that of the release which allows most.
func (l *releases) limitOf(d *deployment, p *plannedRelease, t *corev1.PodTemplateSpec) (limit, first int32, of *release) {
	replicas, plans := d.replicas.within(l.ns.now), p.steps.within(l.ns.now)
	for _, r := range l.lately() {
		if !r.matches(t) {
			continue
		}
		if allowed := r.allowed(plans, replicas); of == nil || allowed > limit {
			limit, of = allowed, r
		}
		first = max(first, (&release{}).allowed(plans, replicas))
	}
	return limit, first, of
}
