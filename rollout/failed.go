package rollout

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/engine/native"
	"github.com/tranche-dev/tranche/rollout/jsonpatch"
)

// keptFailure is what is kept of a release that was rolled back.
type keptFailure struct {
	plan.Failure
	in *appsv1.ControllerRevision // nil: nothing is kept
}

// failureOf reads the failure that is kept beside the records of a Deployment. One without
// owners counts where the status has lost what failed, and the name proves it.
func (r *reconciler) failureOf(ctx context.Context, br *v1alpha1.BatchRelease, d *appsv1.Deployment) (keptFailure, error) {
	owners := []string{string(d.UID), string(br.UID)}
	if br.Status.FailedRevision == "" {
		owners = append(owners, unowned)
	}
	for _, owner := range owners {
		var list appsv1.ControllerRevisionList
		if err := r.List(ctx, &list, client.InNamespace(d.Namespace), client.MatchingFields{indexOwner: owner}); err != nil {
			return keptFailure{}, fmt.Errorf("listing the ControllerRevisions of Deployment %s/%s: %w", d.Namespace, d.Name, err)
		}
		for i := range list.Items {
			if c := &list.Items[i]; plan.IsFailure(c) && (owner != unowned || provesFailure(c, d.Name)) {
				f, err := plan.ReadFailure(c)
				return keptFailure{f, c}, err
			}
		}
	}
	return keptFailure{}, nil
}

// provesFailure reports whether the name of a ControllerRevision says the Deployment and the
// template that failed.
func provesFailure(c *appsv1.ControllerRevision, deployment string) bool {
	record, err := plan.ReadRecord(c)
	return err == nil && c.DeletionTimestamp == nil && c.Name == failureName(deployment, record.Template)
}

// failureName returns the name of the failure that is kept of a Deployment.
func failureName(deployment string, template *corev1.PodTemplateSpec) string {
	return native.NameWithHash(deployment, "failed-"+plan.TemplateDigest(template)[:10])
}

// recall returns a BatchRelease with the failure in its status where that has lost it,
// and spec still brings what failed, by the same commit.
func (k keptFailure) recall(br *v1alpha1.BatchRelease) *v1alpha1.BatchRelease {
	if k.in == nil || br.Status.FailedRevision != "" || !k.isOf(&br.Spec) {
		return br
	}
	br = br.DeepCopy()
	br.Status.FailedRevision, br.Status.FailedCommit = k.Revision, k.Commit
	br.Status.FailedTemplateDigest, br.Status.FailedMessage = k.Digest, k.Message
	return br
}

func (k keptFailure) isOf(spec *v1alpha1.BatchReleaseSpec) bool {
	return spec.Commit == k.Commit && plan.TemplateDigest(spec.Template) == k.Digest
}

// keepFailure keeps what the status says has failed, and deletes what is kept when Git
// says something else. An unconfirmed plan is not what Git says. A release without a
// commit is not kept: a user who makes its BatchRelease again asks for it again.
func (r *reconciler) keepFailure(ctx context.Context, o engine.Observed, s *v1alpha1.BatchReleaseStatus, kept keptFailure) error {
	if o.Deployment == nil || o.Rival != "" || o.Unconfirmed != "" {
		return nil
	}
	now := keptFailure{Failure: plan.Failure{Commit: s.FailedCommit, Revision: s.FailedRevision, Digest: s.FailedTemplateDigest,
		Message: s.FailedMessage}}
	failed := s.FailedRevision != "" && s.FailedCommit != "" && now.isOf(&o.Release.Spec)
	if kept.in != nil && (failed && kept.Failure != now.Failure || !kept.isOf(&o.Release.Spec)) {
		old := client.Preconditions{UID: &kept.in.UID, ResourceVersion: &kept.in.ResourceVersion}
		if err := client.IgnoreNotFound(r.Delete(ctx, kept.in, old)); err != nil {
			return fmt.Errorf("deleting ControllerRevision %s/%s of a release that failed before: %w", kept.in.Namespace, kept.in.Name, err)
		}
		kept.in = nil
	}
	if !failed || kept.in != nil && metav1.IsControlledBy(kept.in, o.Release) {
		return nil
	}
	return now.create(ctx, r, o)
}

// create keeps a failure beside the records of the Deployment.
func (k keptFailure) create(ctx context.Context, r client.Client, o engine.Observed) error {
	c, err := k.ControllerRevision(o.Deployment.Namespace, o.Release.Spec.Template)
	if err != nil {
		return err
	}
	c.Name = failureName(o.Deployment.Name, o.Release.Spec.Template)
	c.OwnerReferences = ownersOf(o.Deployment, o.Release)
	err = r.Create(ctx, c, fieldOwner)
	if apierrors.IsAlreadyExists(err) { // a Deployment that was orphaned has left it, or a restore has made it
		p := jsonpatch.Patch{}
		p.Add("/metadata/annotations", c.Annotations)
		p.Add("/metadata/ownerReferences", c.OwnerReferences)
		err = r.Patch(ctx, c, p.Raw(), fieldOwner)
	}
	if err != nil {
		return fmt.Errorf("keeping in ControllerRevision %s/%s that %s has failed: %w", c.Namespace, c.Name, k.Revision, err)
	}
	return nil
}
