package engine

import (
	"fmt"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/position"
)

// decideWithout is about a Deployment that is gone, or that is going.
func decideWithout(d *draft) {
	if position.Releasing(&d.Status) {
		refuseApproval(d) // it would stay in the status until the Deployment is back
	}
	if d.Deployment == nil {
		awaitDeployment(d)
		return
	}
	awaitDeletion(d)
}

// awaitDeployment is about a Deployment that is not there: no pod of it runs.
func awaitDeployment(d *draft) {
	message := fmt.Sprintf("there is no Deployment %s/%s", d.Release.Namespace, d.Spec.WorkloadRef.Name)
	if d.Status.Phase != "" && d.Status.Reason != v1alpha1.ReasonDeploymentNotFound { // it was there
		d.warn(v1alpha1.ReasonDeploymentNotFound, message)
	}
	s := &d.Status
	s.Replicas, s.UpdatedReplicas, s.UpdatedReadyReplicas, s.UpdatedAvailableReplicas = 0, 0, 0, 0
	d.report(v1alpha1.ReasonDeploymentNotFound, message)
}

// awaitDeletion is about a Deployment that is being deleted. It stays until its
// finalizers are gone: those of a foreground deletion with its ReplicaSets.
func awaitDeletion(d *draft) {
	message := fmt.Sprintf("Deployment %s/%s is being deleted", d.Deployment.Namespace, d.Deployment.Name)
	left := d.DeadlineLength() - d.Now.Sub(d.Deployment.DeletionTimestamp.Time)
	if left > 0 {
		d.wait = left
		d.report(v1alpha1.ReasonDeploymentNotFound, message)
		return
	}
	d.stall(v1alpha1.ReasonDeploymentNotFound, fmt.Sprintf("%s%s; this has taken longer than %s: %s",
		message, d.Deletions(), d.DeadlineLength(), position.DeletionAdvice(d.Deployment.Finalizers)))
}
