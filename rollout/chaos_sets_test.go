package rollout_test

import (
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/rollout/engine"
)

// chaosSets is what users do by hand to the ReplicaSets of a Deployment. They delete those
// with pods, and scale them down and up. They write other numbers to the annotations of the
// native controller, and annotate the pod template. They take the Deployment from one as its
// owner, and delete all of its pods.
type chaosSets struct {
	*chaos
	name string // of the Deployment
}

// strike does one thing to one ReplicaSet that has pods.
func (s *chaosSets) strike() error {
	rs, err := s.pick()
	if rs == nil {
		return err
	}
	kind := []string{"delete", "down", "down", "up", "annotate", "template", "orphan", "pods"}[s.r.IntN(8)]
	s.struck["replicaset "+kind]++
	switch size := *rs.Spec.Replicas; kind {
	case "delete":
		return client.IgnoreNotFound(s.c.Client.Delete(s.Context(), rs))
	case "down":
		rs.Spec.Replicas = ptr.To(s.r.Int32N(size))
	case "up":
		rs.Spec.Replicas = ptr.To(size + 1 + s.r.Int32N(2))
	case "annotate":
		rs.Annotations = maps.Clone(rs.Annotations)
		key := []string{engine.AnnotationDesiredReplicas, engine.AnnotationMaxReplicas, engine.AnnotationRevision}[s.r.IntN(3)]
		metav1.SetMetaDataAnnotation(&rs.ObjectMeta, key, fmt.Sprint(s.r.IntN(7)))
	case "template":
		metav1.SetMetaDataAnnotation(&rs.Spec.Template.ObjectMeta, "example.org/by-hand", fmt.Sprint(s.blows))
	case "orphan":
		rs.OwnerReferences = nil
	case "pods":
		hash := rs.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
		return s.c.Client.DeleteAllOf(s.Context(), &corev1.Pod{}, client.InNamespace(s.ns),
			client.MatchingLabels{"app": s.name, appsv1.DefaultDeploymentUniqueLabelKey: hash})
	}
	return client.IgnoreNotFound(s.c.Client.Update(s.Context(), rs, byHandOf))
}

// pick returns one of the Deployment's ReplicaSets that have pods; nil without any.
func (s *chaosSets) pick() (*appsv1.ReplicaSet, error) {
	var sets appsv1.ReplicaSetList
	if err := s.c.Client.List(s.Context(), &sets, client.InNamespace(s.ns), client.MatchingLabels{"app": s.name}); err != nil {
		return nil, err
	}
	var active []*appsv1.ReplicaSet
	for i := range sets.Items {
		if *sets.Items[i].Spec.Replicas > 0 {
			active = append(active, &sets.Items[i])
		}
	}
	if len(active) == 0 {
		return nil, nil //nolint:nilnil // there is none, and that is no error
	}
	return active[s.r.IntN(len(active))], nil
}
