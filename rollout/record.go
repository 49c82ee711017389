package rollout

import (
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

const (
	// labelManagedBy is on every ControllerRevision of ours; the cache holds
	// no others.
	labelManagedBy = "app.kubernetes.io/managed-by"
	managedBy      = "tranche"

	// annotationStrategy is the strategy of the Deployment when it was last
	// not held. An annotation, since the data of a ControllerRevision may
	// never change.
	annotationStrategy = v1alpha1.Group + "/strategy"
	annotationRevision = v1alpha1.Group + "/revision"
)

// recordData is a ControllerRevision's data: a patch of the Deployment, as
// StatefulSets and DaemonSets keep theirs.
type recordData struct {
	Spec struct {
		Template *corev1.PodTemplateSpec `json:"template"`
	} `json:"spec"`
}

func readRecord(c *appsv1.ControllerRevision) (engine.Record, error) {
	r := engine.Record{Name: c.Name, ResourceVersion: c.ResourceVersion, Order: c.Revision, Revision: c.Annotations[annotationRevision]}
	var data recordData
	if err := json.Unmarshal(c.Data.Raw, &data); err != nil {
		return r, fmt.Errorf("reading ControllerRevision %s/%s: data: %w", c.Namespace, c.Name, err)
	}
	if data.Spec.Template == nil {
		return r, fmt.Errorf("reading ControllerRevision %s/%s: data.spec.template is missing; delete it to have it made anew", c.Namespace, c.Name)
	}
	r.Template = data.Spec.Template
	if s := c.Annotations[annotationStrategy]; s != "" {
		r.Strategy = &appsv1.DeploymentStrategy{}
		if err := json.Unmarshal([]byte(s), r.Strategy); err != nil {
			return r, fmt.Errorf("reading ControllerRevision %s/%s: annotation %s: %w", c.Namespace, c.Name, annotationStrategy, err)
		}
	}
	return r, nil
}

// newRecord returns the ControllerRevision of a record. The Deployment owns
// it, so it goes with the Deployment and no other controller adopts it.
func newRecord(d *appsv1.Deployment, r engine.Record) (*appsv1.ControllerRevision, error) {
	var data recordData
	data.Spec.Template = r.Template
	raw, err := json.Marshal(data)
	if err != nil {
		return nil, fmt.Errorf("encoding the template of revision %s: %w", r.Revision, err)
	}
	annotations, err := recordAnnotations(r)
	if err != nil {
		return nil, err
	}
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name:            engine.NameWithHash(d.Name, r.Revision),
			Namespace:       d.Namespace,
			Labels:          map[string]string{labelManagedBy: managedBy},
			Annotations:     annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Data:     runtime.RawExtension{Raw: raw},
		Revision: r.Order,
	}, nil
}

func recordAnnotations(r engine.Record) (map[string]string, error) {
	strategy, err := json.Marshal(r.Strategy)
	if err != nil {
		return nil, fmt.Errorf("encoding the strategy of revision %s: %w", r.Revision, err)
	}
	return map[string]string{annotationRevision: r.Revision, annotationStrategy: string(strategy)}, nil
}
