// Package direct writes decisions to the cluster instead of Git.
package direct

import (
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Approve opens the gate of the present step in the cluster.
func Approve(cmd *cobra.Command, at *cli.Connection, br *v1alpha1.BatchRelease, step int32, yes bool) error {
	name := br.Name + " -n " + br.Namespace
	switch {
	case br.Spec.RequireSignedApprovals:
		return fmt.Errorf("only signed approvals count for %s/%s, and the controller refuses one in the cluster; run tranche approve %s --sign "+
			"--push", br.Namespace, br.Name, name)
	case br.Spec.ReviewApprovals:
		return fmt.Errorf("approvals of %s/%s are reviewed in Git, and one in the cluster opens no gate; run tranche approve %s, and have the "+
			"commit reviewed", br.Namespace, br.Name, name)
	case step != br.Status.CurrentStepIndex:
		return fmt.Errorf("--direct approves the present step only, which is %d", br.Status.CurrentStepIndex)
	case br.Status.CurrentStepState != v1alpha1.StepBlocking:
		return fmt.Errorf("step %d of %s/%s does not wait at its gate yet: %s", step, br.Namespace, br.Name, br.Status.Reason)
	case br.Status.RequestedApproval != nil && br.Status.RequestedApproval.Step == step:
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "Step %d of %s/%s was approved in the cluster already. "+
			"Its gate opens once the step's pods are available.\n", step, br.Namespace, br.Name)
		return err
	}
	if err := cli.Agree(cmd, yes, fmt.Sprintf("Approve step %d of %s/%s in the cluster?", step, br.Namespace, br.Name)); err != nil {
		return err
	}
	then := ""
	if br.Status.Reason == v1alpha1.ReasonUpgrading { // the Deployment has grown at the gate
		then = " The gate opens once the step's pods are available."
	}
	// On the version that was looked at: a gate that has opened meanwhile is
	// not the one that was approved.
	patch := client.MergeFromWithOptions(br.DeepCopy(), client.MergeFromWithOptimisticLock{})
	br.Status.CurrentStepState = v1alpha1.StepCompleted
	if err := at.Status().Patch(cmd.Context(), br, patch); err != nil {
		return fmt.Errorf("approving step %d of %s/%s: %w", step, br.Namespace, br.Name, err)
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "Approved step %d of %s/%s in the cluster. Git does not say so.%s\n",
		step, br.Namespace, br.Name, then)
	return err
}

// Rollback asks the controller for a rollback by annotation.
func Rollback(cmd *cobra.Command, at *cli.Connection, name string, yes bool) error {
	br, err := at.Release(cmd.Context(), name)
	if err != nil {
		return err
	}
	if err := cli.Agree(cmd, yes, fmt.Sprintf("Roll %s/%s back in the cluster?", br.Namespace, br.Name)); err != nil {
		return err
	}
	patch := client.MergeFrom(br.DeepCopy())
	if br.Annotations == nil {
		br.Annotations = map[string]string{}
	}
	br.Annotations[v1alpha1.AnnotationRollback] = "true"
	if err := at.Patch(cmd.Context(), br, patch); err != nil {
		return fmt.Errorf("asking for the rollback of %s/%s: %w", br.Namespace, br.Name, err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "Asked for the rollback of %s/%s. Git does not say so until the change is reverted there.\n",
		br.Namespace, br.Name)
	return err
}
