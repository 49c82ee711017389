package engine

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
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

func (f *facts) time() *metav1.Time { return &metav1.Time{Time: f.now} }

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
	// Pods says why pods of the update revision are not available; nil: not
	// observed. See [Decision].NeedsPods.
	Pods *Pods
	// Jumped is how far the clock has jumped since the status was written: ahead, or back
	// where it is negative. Time that passes is no jump. Zero where none was seen.
	Jumped time.Duration
	// Contested is how long drift of a native Deployment is left: another manager changes
	// it again after each revert, as ContestedBy says. Zero: it is reverted now.
	Contested   time.Duration
	ContestedBy string
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

func (f *facts) touched() bool { return touched(f.Deployment, len(f.Records) > 0) }

// native reports whether the native controller is not kept off, whatever the label says.
func (f *facts) native() bool {
	return !f.Deployment.Spec.Paused && f.Deployment.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType
}

// touched reports whether anything of a hold is on the Deployment. A hold is known by
// more than its label. Otherwise a governed Deployment that has lost the label, and is
// paused and of strategy Recreate, would wait for a hand-back for ever.
func touched(d *appsv1.Deployment, governed bool) bool {
	return d.Labels[v1alpha1.LabelHeld] != "" || governed && d.Spec.Paused && d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType
}

// leftAlone reports whether the Deployment is to be left as it is: no release begins.
// A release that has taken the hold goes on, since the Deployment would stay held;
// see [course.keep].
func (f *facts) leftAlone() bool {
	return f.Deployment.Annotations[v1alpha1.AnnotationReconcile] == v1alpha1.AnnotationReconcileDisabled
}

// brings reports whether a template is what spec.template brings. It compares with that
// as the API server completes it or, if the API server was not asked, with its record.
func (f *facts) brings(t *corev1.PodTemplateSpec) bool {
	if f.Release.Spec.Template == nil || f.Template != nil {
		return plan.EqualTemplate(f.Template, t)
	}
	digest := plan.TemplateDigest(f.Release.Spec.Template)
	return slices.ContainsFunc(f.Records, func(r Record) bool { return r.Sent == digest && plan.EqualTemplate(r.Template, t) })
}
