package facts

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/verdict"
)

// Facts are what was observed, sorted out once: nothing of them changes in a round.
type Facts struct {
	*Observed
	Now time.Time

	StableRecords    []Record // of what has been stable, newest first
	ReleasingRecords []Record // of what is being released
	OutdatedRecords  []Record // of what is on record as it is now, too

	Replicas, Surge, Unavailable int32
	// Strategy to hand back.
	Strategy appsv1.DeploymentStrategy
	// BadBounds is why strategy is not usable; nil: it is. The bounds are then those of the
	// API server's default strategy.
	BadBounds error
}

func New(o *Observed, now time.Time) *Facts {
	f := &Facts{Observed: o, Now: now}
	for _, r := range NewestFirst(o.Records) {
		again := func(newer Record) bool { return r.Sent != "" && newer.Sent == r.Sent }
		switch {
		case r.Order == 0:
			f.ReleasingRecords = append(f.ReleasingRecords, r)
		case slices.ContainsFunc(f.StableRecords, again): // admission has made another template of it since
			f.OutdatedRecords = append(f.OutdatedRecords, r)
		default:
			f.StableRecords = append(f.StableRecords, r)
		}
	}
	if o.Deployment == nil {
		return f
	}
	f.Replicas = Replicas(o.Deployment)
	f.Strategy = manifestStrategy(o, f.StableRecords)
	f.Surge, f.Unavailable, f.BadBounds = plan.Bounds(&f.Strategy, f.Replicas)
	if f.BadBounds = cmp.Or(f.BadBounds, refusedBounds(f.Strategy.RollingUpdate)); f.BadBounds != nil {
		f.Surge, f.Unavailable, _ = plan.Bounds(nil, f.Replicas)
	}
	return f
}

// RecordSent returns the record of what was sent as this: of what is being released before
// what was stable. It is nil without one.
func (f *Facts) RecordSent(digest string) *Record {
	return f.RecordThat(func(r *Record) bool { return r.Sent == digest })
}

// RecordThat returns a record of what is being released, else one of what was stable; nil
// without one. If the Deployment has the template of the latter, the former is left from
// before: admission makes no other template any more.
func (f *Facts) RecordThat(is func(*Record) bool) *Record {
	released := f.ReleasingOf(is)
	i := slices.IndexFunc(f.StableRecords, func(r Record) bool { return is(&r) })
	if i < 0 || released != nil && (f.has(released) || !f.has(&f.StableRecords[i])) {
		return released
	}
	return &f.StableRecords[i]
}

// has reports whether the Deployment has the template of a record.
func (f *Facts) has(r *Record) bool {
	return plan.EqualTemplate(r.Template, &f.Deployment.Spec.Template)
}

// Recorded returns the revision of the i-th newest record of what was stable, nil
// without one. Admission may have changed the template since: then a record of
// what is being released has the same origin, and the template of today. Not where the
// Deployment has the stable one: then the other one is left from before.
func (f *Facts) Recorded(i int) *Revision {
	if i >= len(f.StableRecords) {
		return nil
	}
	r := RevisionOfRecord(f.Observed, &f.StableRecords[i])
	if r.Equal(&f.Deployment.Spec.Template) {
		return r
	}
	if released := f.ReleasingOf(func(other *Record) bool { return other.Sent == r.ID }); released != nil {
		return RevisionOfRecord(f.Observed, released)
	}
	return r
}

// ReleasingOf returns a record of what is being released: of several, the one that
// the Deployment has.
func (f *Facts) ReleasingOf(is func(*Record) bool) *Record {
	var found *Record
	for i := range f.ReleasingRecords {
		if r := &f.ReleasingRecords[i]; is(r) && (found == nil || f.has(r)) {
			found = r
		}
	}
	return found
}

func (f *Facts) Time() *metav1.Time { return &metav1.Time{Time: f.Now} }

// Observed is what a round is decided on. Decide changes none of it.
type Observed struct {
	// Release is the BatchRelease.
	Release *v1alpha1.BatchRelease
	// Deployment that it governs; nil where there is none.
	Deployment *appsv1.Deployment
	// ReplicaSets that the Deployment controls, also those that are being deleted.
	ReplicaSets []*appsv1.ReplicaSet
	// Records of what has been stable, and of what is being released.
	Records []Record
	// Template is the release's spec.template as the API server defaults it. It
	// may be nil where the spec has none, or where a record was sent as it.
	Template *corev1.PodTemplateSpec
	// Minor is the cluster's version: 36 for Kubernetes 1.36. New revisions
	// are named as that version names them.
	Minor int
	// Refused is why the API server does not take spec.template, would not take the
	// hand-back, or would change what is written of a ReplicaSet. It is nil if it does
	// none of that. RefusedReason is [v1alpha1.ReasonHandBackRefused] for the second, and
	// [v1alpha1.ReasonWriteRefused] for the third.
	Refused       error
	RefusedReason string
	// CreationRefused: of the writes of ReplicaSets only creations are refused, and
	// resizes pass.
	CreationRefused bool
	// GrowthRefused: the API server does not let the update revision's ReplicaSet grow.
	GrowthRefused bool
	// Pods says why pods of the update revision are not available; nil: not
	// observed. A Decision says when it needs them.
	Pods *Pods
	// Ready is how many pods of the update revision are ready by what they say
	// themselves; nil: not observed. A Decision says when it needs it.
	Ready *int32
	// Unconfirmed is why nothing begins and nothing moves: another user has made the plan of
	// a GitSource, which has not written it since. It is empty for any other plan. SourceGone:
	// there is no such GitSource.
	Unconfirmed string
	SourceGone  bool
	// Jumped is how far the clock has jumped since the status was written: ahead, or back
	// where it is negative. Time that passes is no jump. Zero where none was seen.
	Jumped time.Duration
	// Contested is how long drift of a native Deployment is left: another manager changes
	// it again after each revert, as ContestedBy says. Zero: it is reverted now.
	Contested   time.Duration
	ContestedBy string
	// Measured are the answers to measurements of this release that have come, in any order.
	// Answers that are in the status already, or of another release, do no harm.
	Measured []verdict.Measured
	// Rival is the name of the plan that governs the same Deployment instead; see
	// [plan.ComparePlans].
	Rival string
}

// Record is a revision that the Deployment runs or ran, kept in the cluster.
type Record = plan.Record

// Pods counts the pods of the update revision that are not available, by whose
// fault that is.
type Pods struct {
	// Failing pods run, or could, and do not become available.
	Failing int32
	// Waiting pods are not there for a reason of the cluster. They cannot be scheduled,
	// were evicted, sit on a lost node, or exceed a quota.
	Waiting int32
	// PlacedTime is when the first of the failing pods got its node; zero where one
	// of them could not be created.
	PlacedTime time.Time
	// Cause names the causes, counted, for people.
	Cause string
}

func (f *Facts) Touched() bool { return touched(f.Deployment, len(f.Records) > 0) }

// Native reports whether the native controller is not kept off, whatever the label says.
func (f *Facts) Native() bool {
	return !f.Deployment.Spec.Paused && f.Deployment.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType
}

// touched reports whether anything of a hold is on the Deployment. A hold is known by
// more than its label. Otherwise a governed Deployment that has lost the label, and is
// paused and of strategy Recreate, would wait for a hand-back for ever.
func touched(d *appsv1.Deployment, governed bool) bool {
	return v1alpha1.HasHeld(d.Labels) || governed && d.Spec.Paused && d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType
}

// LeftAlone reports whether the Deployment is to be left as it is: no release begins.
// A release that has taken the hold goes on, since the Deployment would stay held;
// see Course.Resolve of package position.
func (f *Facts) LeftAlone() bool {
	return f.Deployment.Annotations[v1alpha1.AnnotationReconcile] == v1alpha1.AnnotationReconcileDisabled
}

// Brings reports whether a template is what spec.template brings. It compares with that
// as the API server completes it or, if the API server was not asked, with its record.
func (f *Facts) Brings(t *corev1.PodTemplateSpec) bool {
	if f.Release.Spec.Template == nil || f.Template != nil {
		return plan.EqualTemplate(f.Template, t)
	}
	digest := plan.TemplateDigest(f.Release.Spec.Template)
	return slices.ContainsFunc(f.Records, func(r Record) bool { return r.Sent == digest && plan.EqualTemplate(r.Template, t) })
}

// AfterJump returns what the clock of now would have shown at a time of the status. A
// time that lay ahead of the clock before it jumped is from a better clock, and stays. A
// machine may begin with its clock at 1970.
func (f *Facts) AfterJump(t *metav1.Time) *metav1.Time {
	if t == nil || f.Jumped == 0 || t.After(f.Now.Add(-f.Jumped)) {
		return t
	}
	return &metav1.Time{Time: t.Add(f.Jumped)}
}

// Held reports whether the native controller is kept off this Deployment by a
// hold of ours.
func Held(d *appsv1.Deployment) bool {
	return v1alpha1.HasHeld(d.Labels) && d.Spec.Paused && d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType
}
