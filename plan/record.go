package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// LabelManagedBy with the value [ManagedBy] is on every ControllerRevision of
// Tranche.
const (
	LabelManagedBy = "app.kubernetes.io/managed-by"
	ManagedBy      = "tranche"
)

// The annotations of a ControllerRevision of Tranche. The data of a
// ControllerRevision may never change, so what may change is annotations.
const (
	annotationStrategy = v1alpha1.Group + "/strategy"
	annotationRevision = v1alpha1.Group + "/revision"
	annotationSent     = v1alpha1.Group + "/sent"
)

// Record is a revision of a Deployment that is stable, was stable before, or is
// being released, kept as a ControllerRevision.
//
// Deployment and BatchRelease both own it. So the garbage collector deletes it when both
// are gone. A Deployment that is deleted in the middle of a release can come back at its
// stable revision. The BatchRelease controls it: a StatefulSet of any user could adopt one that
// nothing controls, and delete it.
type Record struct {
	// Name of the ControllerRevision.
	Name string
	// ResourceVersion that it was read at.
	ResourceVersion string
	// Order is the ControllerRevision's revision. The highest one is stable, the
	// second highest was before; 0 is being released and has not been stable.
	Order int64
	// Revision is the name that the pod template had when it was recorded.
	Revision string
	// Template as the API server returned it.
	Template *corev1.PodTemplateSpec
	// Kept is the template of the ControllerRevision, if Template, which the API server
	// makes of it today, is another one. nil: the two are the same.
	Kept *corev1.PodTemplateSpec
	// Sent is the [TemplateDigest] of the template as Git, or spec.template,
	// said it: before the defaults of the API server and the changes of admission.
	// Empty: not known.
	Sent string
	// Strategy of the Deployment when it was last not held.
	Strategy *appsv1.DeploymentStrategy
}

// recordData is a ControllerRevision's data: a patch of the Deployment, as
// StatefulSets and DaemonSets keep theirs.
type recordData struct {
	Spec struct {
		Template *corev1.PodTemplateSpec `json:"template"`
	} `json:"spec"`
}

// ReadRecord decodes a record. The error names the ControllerRevision and the
// field that cannot be read.
func ReadRecord(c *appsv1.ControllerRevision) (Record, error) {
	r := Record{Name: c.Name, ResourceVersion: c.ResourceVersion, Order: c.Revision,
		Revision: c.Annotations[annotationRevision], Sent: c.Annotations[annotationSent]}
	var data recordData
	if err := json.Unmarshal(c.Data.Raw, &data); err != nil {
		return r, fmt.Errorf("reading ControllerRevision %s/%s: data: %w", c.Namespace, c.Name, err)
	}
	if data.Spec.Template == nil {
		return r, fmt.Errorf("reading ControllerRevision %s/%s: data.spec.template is missing; delete it to have it made again",
			c.Namespace, c.Name)
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

// ControllerRevision returns the object of a record without its name and its
// owners.
func (r Record) ControllerRevision(namespace string) (*appsv1.ControllerRevision, error) {
	var data recordData
	data.Spec.Template = r.Template
	// Keys in order: the garbage collector orphans an object by a strategic merge patch,
	// which sorts them. The API server refuses any change of the data.
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&data)
	if err != nil {
		return nil, fmt.Errorf("converting the template of revision %s: %w", r.Revision, err)
	}
	raw, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("encoding the template of revision %s: %w", r.Revision, err)
	}
	strategy, err := json.Marshal(r.Strategy)
	if err != nil {
		return nil, fmt.Errorf("encoding the strategy of revision %s: %w", r.Revision, err)
	}
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   namespace,
			Labels:      map[string]string{LabelManagedBy: ManagedBy},
			Annotations: map[string]string{annotationRevision: r.Revision, annotationStrategy: string(strategy), annotationSent: r.Sent},
		},
		Data:     runtime.RawExtension{Raw: raw},
		Revision: r.Order,
	}, nil
}

// StableRecord returns the record of the stable revision: the one of the
// highest order, then the first by name. It is nil where none has been stable.
func StableRecord(records []Record) *Record {
	var stable *Record
	for i := range records {
		r := &records[i]
		if r.Order > 0 && (stable == nil || r.Order > stable.Order || r.Order == stable.Order && r.Name < stable.Name) {
			stable = r
		}
	}
	return stable
}

// TemplateDigest returns the SHA-256 of a pod template as JSON, in hexadecimal. It is the
// identity of the template that was sent, as [EqualTemplate] is the identity of what the
// API server made of it. It is empty for nil.
func TemplateDigest(t *corev1.PodTemplateSpec) string {
	if t == nil {
		return ""
	}
	raw, err := json.Marshal(t)
	if err != nil {
		return "" // a pod template always encodes
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}
