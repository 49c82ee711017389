package engine

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		message, d.Deletions(), d.DeadlineLength(), deletionAdvice(d.Deployment.Finalizers)))
}

// deletionAdvice says which finalizers keep a Deployment. That of a foreground deletion goes
// with the ReplicaSets and pods, so theirs are the ones to look at.
func deletionAdvice(finalizers []string) string {
	others := slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool { return f == metav1.FinalizerDeleteDependents })
	var advice []string
	if len(others) > 0 {
		advice = append(advice, "see its finalizers, "+strings.Join(others, ", "))
	}
	if len(others) < len(finalizers) {
		advice = append(advice, "it waits until its ReplicaSets and their pods are gone, see the finalizers of those")
	}
	return strings.Join(advice, "; ")
}
