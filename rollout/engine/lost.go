package engine

import (
	"fmt"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
	"github.com/tranche-dev/tranche/rollout/engine/position"
)

// awaitRecords is about a held Deployment if nothing tells its stable revision. Nothing is
// written, and the status keeps what it knows. It is left when a record or a ReplicaSet of
// the stable revision is there, or when the plan is gone.
func awaitRecords(d *draft) {
	observeApproval(d) // it is for the steps that are there when it is first seen
	live := facts.RevisionOf(d.Observed, &d.Deployment.Spec.Template)
	d.Course = d.To(live)
	lost, remedy := "the stable revision", ""
	switch name := d.Status.StableRevision; {
	case name != "":
		lost, remedy = "stable revision "+name, "; or bring the pod template of "+name+" again"
	case position.RunsNothing(d.Facts):
		remedy = "; or bring another pod template, which then has all pods at once, without gates"
	}
	message := fmt.Sprintf("no record and no ReplicaSet of %s is there; Deployment %s stays held at %s, and no pod is added. "+
		"Restore the ControllerRevisions of the Deployment from a back-up, without ownerReferences%s. "+
		"If the plan is removed, the native controller brings all pods to %s, without gates",
		lost, d.Deployment.Name, live.Name, remedy, live.Name)
	if d.Status.Reason != v1alpha1.ReasonRecordsLost {
		d.warn(v1alpha1.ReasonRecordsLost, message)
	}
	d.stall(v1alpha1.ReasonRecordsLost, message)
	d.wait = refusedInterval
}
