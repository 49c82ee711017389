package facts

import (
	"cmp"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/plan"
)

// Revision is a pod template with its name and, where they exist, its record and
// its ReplicaSet.
type Revision struct {
	// Name in status, messages and approvals. It stays when a ReplicaSet of the
	// revision must be named otherwise.
	Name string
	// Hash that a ReplicaSet of the revision is named with.
	Hash string
	// ID is the [plan.TemplateDigest] of what was sent: the revision's identity,
	// whatever defaults and admission make of it.
	ID string
	// Sent is what to write to the Deployment.
	Sent *corev1.PodTemplateSpec
	// Template as the API server returned it.
	Template   *corev1.PodTemplateSpec
	Record     *Record
	ReplicaSet *appsv1.ReplicaSet
}

func (r *Revision) Equal(t *corev1.PodTemplateSpec) bool {
	return r != nil && plan.EqualTemplate(r.Template, t)
}

// RevisionOf names a template: by the label of its ReplicaSet where there is
// one, and otherwise by its hash.
func RevisionOf(o *Observed, t *corev1.PodTemplateSpec) *Revision {
	if t == nil {
		return nil
	}
	r := &Revision{Sent: t, Template: t, ReplicaSet: FindReplicaSet(o.ReplicaSets, t)}
	if r.ReplicaSet != nil {
		r.Hash = r.ReplicaSet.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	}
	if r.Hash == "" {
		r.Hash = plan.TemplateHash(t, o.Deployment.Status.CollisionCount, o.Minor)
	}
	r.Name = r.Hash
	return r
}

// RevisionOfRecord returns the revision of a record, under the name that it was
// recorded with. A ReplicaSet that is made for it is named as the native controller
// would name it now, which after a collision is another name.
func RevisionOfRecord(o *Observed, record *Record) *Revision {
	r := RevisionOf(o, record.Template)
	r.Record = record
	if r.ID = record.Sent; r.ID == "" {
		r.ID = plan.TemplateDigest(record.Template)
	}
	if record.Revision != "" {
		r.Name = record.Revision
	}
	return r
}

func RevisionOfReplicaSet(rs *appsv1.ReplicaSet) Revision {
	hash := rs.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	return Revision{Name: hash, Hash: hash, Template: &rs.Spec.Template, ReplicaSet: rs}
}

// Templated returns the revision of the Deployment's template, of its record where it
// has one: that says what was sent.
func (f *Facts) Templated() *Revision {
	live := &f.Deployment.Spec.Template
	if i := slices.IndexFunc(f.Records, func(r Record) bool { return plan.EqualTemplate(r.Template, live) }); i >= 0 {
		return RevisionOfRecord(f.Observed, &f.Records[i])
	}
	return RevisionOf(f.Observed, live)
}

func (f *Facts) RecordOf(r *Revision, order int64) Record {
	strategy := f.Strategy
	return Record{Order: order, Revision: r.Name, Template: r.Template, Sent: r.ID, Strategy: &strategy}
}

// MostOf returns the template of the ReplicaSet that has the most by a count, and
// the Deployment's where all have none.
func (f *Facts) MostOf(count func(*appsv1.ReplicaSet) int32) *corev1.PodTemplateSpec {
	template, most := &f.Deployment.Spec.Template, int32(0)
	for _, rs := range f.ReplicaSets {
		if n := count(rs); n > most {
			most, template = n, &rs.Spec.Template
		}
	}
	return template
}

// NewestFirst returns the records with the stable one first.
func NewestFirst(records []Record) []Record {
	return slices.SortedFunc(slices.Values(records), func(a, b Record) int {
		return cmp.Or(cmp.Compare(b.Order, a.Order), cmp.Compare(a.Name, b.Name))
	})
}
