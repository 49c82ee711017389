package engine

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

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
	// none of that. RefusedReason is [ReasonHandBackRefused] for the second, and
	// [ReasonWriteRefused] for the third.
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

// IsUpdate reports whether a ReplicaSet is the one of the revision that the release leads
// to. It also does for the native rollout of a Deployment that has no record.
func IsUpdate(o *Observed, rs *appsv1.ReplicaSet) bool {
	if o.Deployment == nil {
		return false
	}
	d := newDraft(o, time.Time{})
	if len(d.records) == 0 {
		return plan.EqualTemplate(&rs.Spec.Template, &o.Deployment.Spec.Template)
	}
	return d.resolve(&d.status).goal.rs == rs
}

// Moves returns the ReplicaSets that the release writes after its hold. They are the
// update revision's, as it is to be made if it is not there, and the stable one if it is
// there.
func Moves(o Observed) []*appsv1.ReplicaSet {
	if o.Deployment == nil {
		return nil
	}
	d := newDraft(&o, time.Time{})
	if len(d.records) == 0 {
		return nil
	}
	c := d.resolve(&d.status)
	var sets []*appsv1.ReplicaSet
	if c.goal.rs == nil {
		sets = append(sets, newReplicaSet(o.Deployment, c.goal, maxRevision(o.ReplicaSets)+1, 1, replicas(o.Deployment), replicas(o.Deployment)))
	}
	for _, r := range []*revision{c.goal, c.stable} {
		if r.rs != nil && !slices.Contains(sets, r.rs) {
			sets = append(sets, r.rs)
		}
	}
	return sets
}

// keptRecords is how many revisions are remembered: stable and last stable.
const keptRecords = 2

// revision is a pod template with its name and, where they exist, its record and
// its ReplicaSet.
type revision struct {
	// name in status, messages and approvals. It stays when a ReplicaSet of the
	// revision must be named otherwise.
	name string
	// hash that a ReplicaSet of the revision is named with.
	hash string
	// id is the [plan.TemplateDigest] of what was sent: the revision's identity,
	// whatever defaults and admission make of it.
	id string
	// sent is what to write to the Deployment.
	sent *corev1.PodTemplateSpec
	// template as the API server returned it.
	template *corev1.PodTemplateSpec
	record   *Record
	rs       *appsv1.ReplicaSet
}

func (r *revision) equal(t *corev1.PodTemplateSpec) bool {
	return r != nil && plan.EqualTemplate(r.template, t)
}

// revisionOf names a template: by the label of its ReplicaSet where there is
// one, and otherwise by its hash.
func revisionOf(o *Observed, t *corev1.PodTemplateSpec) *revision {
	if t == nil {
		return nil
	}
	r := &revision{sent: t, template: t, rs: findReplicaSet(o.ReplicaSets, t)}
	if r.rs != nil {
		r.hash = r.rs.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	}
	if r.hash == "" {
		r.hash = plan.TemplateHash(t, o.Deployment.Status.CollisionCount, o.Minor)
	}
	r.name = r.hash
	return r
}

// revisionOfRecord returns the revision of a record, under the name that it was
// recorded with. A ReplicaSet that is made for it is named as the native controller
// would name it now, which after a collision is another name.
func revisionOfRecord(o *Observed, record *Record) *revision {
	r := revisionOf(o, record.Template)
	r.record = record
	if r.id = record.Sent; r.id == "" {
		r.id = plan.TemplateDigest(record.Template)
	}
	if record.Revision != "" {
		r.name = record.Revision
	}
	return r
}

func revisionOfReplicaSet(rs *appsv1.ReplicaSet) revision {
	hash := rs.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	return revision{name: hash, hash: hash, template: &rs.Spec.Template, rs: rs}
}

// findReplicaSet returns the oldest ReplicaSet with this template, then the
// first by name: the one that the native controller takes for the new one (H19). One
// that is being deleted gets no pod, and is none.
func findReplicaSet(sets []*appsv1.ReplicaSet, t *corev1.PodTemplateSpec) *appsv1.ReplicaSet {
	var found *appsv1.ReplicaSet
	for _, rs := range sets {
		if !deleted(rs) && plan.EqualTemplate(&rs.Spec.Template, t) && (found == nil || older(rs, found) < 0) {
			found = rs
		}
	}
	return found
}

func older(a, b *appsv1.ReplicaSet) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// newestFirst returns the records with the stable one first.
func newestFirst(records []Record) []Record {
	return slices.SortedFunc(slices.Values(records), func(a, b Record) int {
		return cmp.Or(cmp.Compare(b.Order, a.Order), cmp.Compare(a.Name, b.Name))
	})
}

func size(rs *appsv1.ReplicaSet) int32 {
	switch {
	case rs == nil:
		return 0
	case rs.Spec.Replicas == nil:
		return 1 // the API server's default
	}
	return *rs.Spec.Replicas
}

func replicas(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1 // the API server's default
	}
	return *d.Spec.Replicas
}

// Held reports whether the native controller is kept off this Deployment by a
// hold of ours.
func Held(d *appsv1.Deployment) bool {
	return d.Labels[v1alpha1.LabelHeld] != "" && d.Spec.Paused && d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType
}

// Mislabelled reports whether a Deployment has the label of a hold and no hold. There is no
// record of it, and it is not both paused and of strategy Recreate.
func Mislabelled(o *Observed) bool {
	return o.Deployment.Labels[v1alpha1.LabelHeld] != "" && len(o.Records) == 0 && !Held(o.Deployment)
}

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

func (f *facts) touched() bool { return touched(f.Deployment, len(f.Records) > 0) }
