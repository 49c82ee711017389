package native

import (
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/rollout/engine/facts"
)

// The annotations of the native Deployment controller
// (k8s.io/kubernetes/pkg/controller/deployment/util).
const (
	AnnotationRevision        = facts.AnnotationRevision
	AnnotationRevisionHistory = "deployment.kubernetes.io/revision-history"
	AnnotationDesiredReplicas = facts.AnnotationDesiredReplicas
	AnnotationMaxReplicas     = "deployment.kubernetes.io/max-replicas"
)

// notCopied are the annotations of a Deployment that its ReplicaSets do not get.
var notCopied = map[string]bool{
	corev1.LastAppliedConfigAnnotation: true,
	AnnotationRevision:                 true,
	AnnotationRevisionHistory:          true,
	AnnotationDesiredReplicas:          true,
	AnnotationMaxReplicas:              true,
	appsv1.DeprecatedRollbackTo:        true,
}

// NewReplicaSet returns the ReplicaSet that the native controller would make for this
// revision. It is complete: the native controller, which reads it under the hold too,
// finds nothing to write (H16, H17).
//
// number is its revision annotation; 0 for none, if the ReplicaSet is one of the past.
func NewReplicaSet(
	d *appsv1.Deployment, r *facts.Revision, number int64, size, desired, maximum int32,
) *appsv1.ReplicaSet {
	template := *r.Template.DeepCopy()
	template.Labels = WithHash(template.Labels, r.Hash)
	selector := d.Spec.Selector.DeepCopy()
	selector.MatchLabels = WithHash(selector.MatchLabels, r.Hash)
	annotations := SizeAnnotations(desired, maximum)
	if number > 0 {
		annotations[AnnotationRevision] = strconv.FormatInt(number, 10)
	}
	for k, v := range d.Annotations {
		if !notCopied[k] {
			annotations[k] = v
		}
	}
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name:            NameWithHash(d.Name, r.Hash),
			Namespace:       d.Namespace,
			Labels:          maps.Clone(template.Labels),
			Annotations:     annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{
			Replicas:        &size,
			MinReadySeconds: d.Spec.MinReadySeconds,
			Selector:        selector,
			Template:        template,
		},
	}
}

// Taken reports whether a ReplicaSet that is being deleted has the name that one of this
// hash would get.
func Taken(f *facts.Facts, hash string) bool {
	return slices.ContainsFunc(f.ReplicaSets, func(rs *appsv1.ReplicaSet) bool {
		return facts.Deleted(rs) && rs.Name == NameWithHash(f.Deployment.Name, hash)
	})
}

// WithHash returns labels with the template hash of a revision.
func WithHash(labels map[string]string, hash string) map[string]string {
	c := maps.Clone(labels)
	if c == nil {
		c = map[string]string{}
	}
	c[appsv1.DefaultDeploymentUniqueLabelKey] = hash
	return c
}

// maxNameLength of an object of the API server (DNS subdomain).
const maxNameLength = 253

// NameWithHash is <deployment>-<hash>, the name of a revision's objects, with
// the Deployment's part cut where both do not fit.
func NameWithHash(deployment, hash string) string {
	if most := maxNameLength - len(hash) - 1; len(deployment) > most {
		deployment = deployment[:most]
	}
	return deployment + "-" + hash
}

// SizeAnnotations are what the native controller keeps on a ReplicaSet of its size.
func SizeAnnotations(desired, maximum int32) map[string]string {
	return map[string]string{
		AnnotationDesiredReplicas: strconv.Itoa(int(desired)),
		AnnotationMaxReplicas:     strconv.Itoa(int(maximum)),
	}
}

// HasSizeAnnotations reports whether a ReplicaSet has the size annotations of these numbers.
func HasSizeAnnotations(rs *appsv1.ReplicaSet, desired, maximum int32) bool {
	for k, v := range SizeAnnotations(desired, maximum) {
		if rs.Annotations[k] != v {
			return false
		}
	}
	return true
}
