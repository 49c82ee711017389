package plan

import (
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// annotationFailed is on the ControllerRevision that keeps a failure.
const annotationFailed = v1alpha1.Group + "/failed"

// Failure is a release that was rolled back while Git still brings it. The status of the
// BatchRelease says so, too. A failure outlives it, beside the records of the Deployment.
// So a BatchRelease that is deleted and made again does not release the same commit
// again.
type Failure struct {
	// Commit and Revision name the release.
	Commit   string `json:"commit"`
	Revision string `json:"revision"`
	// Digest is the [TemplateDigest] of what was sent.
	Digest string `json:"digest"`
	// Message says why it failed.
	Message string `json:"message,omitempty"`
}

// ControllerRevision returns the object of a failure without its name and its owners.
// Its order is 0, as that of a record of what has not been stable.
func (f Failure) ControllerRevision(namespace string, template *corev1.PodTemplateSpec) (*appsv1.ControllerRevision, error) {
	c, err := Record{Revision: f.Revision, Template: template}.ControllerRevision(namespace)
	if err != nil {
		return nil, err
	}
	said, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("encoding the failure of revision %s: %w", f.Revision, err)
	}
	c.Annotations[annotationFailed] = string(said)
	return c, nil
}

// IsFailure reports whether a ControllerRevision keeps a failure, and no record.
func IsFailure(c *appsv1.ControllerRevision) bool { return c.Annotations[annotationFailed] != "" }

// ReadFailure decodes a failure.
func ReadFailure(c *appsv1.ControllerRevision) (Failure, error) {
	var f Failure
	if err := json.Unmarshal([]byte(c.Annotations[annotationFailed]), &f); err != nil {
		return f, fmt.Errorf("reading ControllerRevision %s/%s: annotation %s: %w; delete it", c.Namespace, c.Name, annotationFailed, err)
	}
	return f, nil
}
