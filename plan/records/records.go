// Package records tells which ControllerRevisions are records of Tranche, of which Deployment, and
// of which controller.
//
// The native controllers of StatefulSets and DaemonSets make ControllerRevisions, too. They copy
// labels and annotations that a user chooses, who may have no right to a ControllerRevision.
package records

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tranche-dev/tranche/plan"
)

// Selector selects the ControllerRevisions of Tranche. The native controllers label each of theirs
// with its hash, whatever its user chooses. Callers do not change it.
var Selector = func() labels.Selector {
	s, err := labels.Parse(plan.LabelManagedBy + "=" + plan.ManagedBy +
		",!controller.kubernetes.io/hash,!" + appsv1.ControllerRevisionHashLabelKey)
	if err != nil {
		panic("selecting records: " + err.Error()) // it is a constant
	}
	return s
}()

// DeploymentOf returns the name of the Deployment that owns a ControllerRevision. It is empty if
// none does.
func DeploymentOf(c *appsv1.ControllerRevision) string {
	for _, owner := range c.OwnerReferences {
		if owner.Kind == "Deployment" && owner.APIVersion == appsv1.SchemeGroupVersion.String() {
			return owner.Name
		}
	}
	return ""
}
