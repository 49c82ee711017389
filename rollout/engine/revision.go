package engine

import (
	"cmp"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/plan"
)

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

// templated returns the revision of the Deployment's template, of its record where it
// has one: that says what was sent.
func (f *facts) templated() *revision {
	live := &f.Deployment.Spec.Template
	if i := slices.IndexFunc(f.Records, func(r Record) bool { return plan.EqualTemplate(r.Template, live) }); i >= 0 {
		return revisionOfRecord(f.Observed, &f.Records[i])
	}
	return revisionOf(f.Observed, live)
}

func (f *facts) recordOf(r *revision, order int64) Record {
	strategy := f.strategy
	return Record{Order: order, Revision: r.name, Template: r.template, Sent: r.id, Strategy: &strategy}
}

// mostOf returns the template of the ReplicaSet that has the most by a count, and
// the Deployment's where all have none.
func (f *facts) mostOf(count func(*appsv1.ReplicaSet) int32) *corev1.PodTemplateSpec {
	template, most := &f.Deployment.Spec.Template, int32(0)
	for _, rs := range f.ReplicaSets {
		if n := count(rs); n > most {
			most, template = n, &rs.Spec.Template
		}
	}
	return template
}

// newestFirst returns the records with the stable one first.
func newestFirst(records []Record) []Record {
	return slices.SortedFunc(slices.Values(records), func(a, b Record) int {
		return cmp.Or(cmp.Compare(b.Order, a.Order), cmp.Compare(a.Name, b.Name))
	})
}
