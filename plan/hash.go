package plan

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/tranche-dev/tranche/plan/hashtext"
)

// TemplateHash returns the pod-template-hash that the native Deployment
// controller of Kubernetes 1.minor gives to a template, as in
// k8s.io/kubernetes/pkg/controller.ComputeHash. The template must be as read
// back from the API server, after defaulting. Minor 0 stands for the version
// that this program is built with.
//
// The hash depends on the version of the Go type, since it covers the names of fields
// that are not set. So it is a name and never an identity. It is computed once, when a
// ReplicaSet is made, and read from the ReplicaSet's label from then on. Identity is
// [EqualTemplate].
func TemplateHash(t *corev1.PodTemplateSpec, collisionCount *int32, minor int) string {
	h := fnv.New32a()
	hashtext.Write(h, t, minor)
	if collisionCount != nil {
		var b [8]byte
		binary.LittleEndian.PutUint32(b[:], uint32(*collisionCount))
		h.Write(b[:])
	}
	return rand.SafeEncodeString(fmt.Sprint(h.Sum32()))
}

// EqualTemplate reports whether two templates, both as read back from the API server, are
// the same revision. They are if they are semantically equal without the
// pod-template-hash label, as in
// k8s.io/kubernetes/pkg/controller/deployment/util.EqualIgnoreHash.
func EqualTemplate(a, b *corev1.PodTemplateSpec) bool {
	if a == nil || b == nil || a == b {
		return a == b
	}
	if !sameImages(a, b) {
		return false
	}
	a, b = withoutHash(a), withoutHash(b)
	return sameBytes(a, b) || equality.Semantic.DeepEqual(a, b)
}

// sameBytes reports whether the API server would store the same bytes for both. That is a fifth
// of the work of a comparison of equal templates. Equal templates may have different bytes:
// a quantity has more than one form.
func sameBytes(a, b *corev1.PodTemplateSpec) bool {
	x, err := a.Marshal()
	if err != nil {
		return false
	}
	y, err := b.Marshal()
	return err == nil && bytes.Equal(x, y)
}

// sameImages spares most comparisons of different templates.
func sameImages(a, b *corev1.PodTemplateSpec) bool {
	return slices.EqualFunc(a.Spec.Containers, b.Spec.Containers, func(x, y corev1.Container) bool { return x.Image == y.Image })
}

// withoutHash returns a shallow copy of t without the pod-template-hash label.
func withoutHash(t *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	if _, ok := t.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; !ok {
		return t
	}
	c := *t
	c.Labels = maps.Clone(t.Labels)
	delete(c.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return &c
}
