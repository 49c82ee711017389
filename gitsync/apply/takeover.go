package apply

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/apiproblem"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/takeover"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Takeover lets the plan of a target take the place of a BatchRelease of its name that a user
// has made.
type Takeover struct {
	Applier *Applier
	// Own reads, and Status writes the status, as the controller.
	Own    client.Reader
	Status client.Client
}

// Note is the message of an event, with its reason.
type Note struct{ Reason, Message string }

// Disinherit removes from the BatchRelease of a target what it may not hand on. now is the
// BatchRelease that governs the Deployment, or nil. Disinherit returns what it has removed,
// also with an error, or nil.
func (o Takeover) Disinherit(ctx context.Context, t *Target, now *v1alpha1.BatchRelease) (*Note, error) {
	if t.Live == nil || t.Mode != Full {
		return nil, nil
	}
	if takeover.IsForeign(t.Live) && now != nil && now.Name != t.GetName() && inventory.IsOwned(now, o.Applier.Source) {
		return o.displace(ctx, t)
	}
	next, lost, err := takeover.Disinherited(t.Live, t.Object, o.Applier.Source)
	if err != nil {
		return nil, err
	}
	if len(lost) == 0 {
		return nil, o.forgetGates(ctx, t)
	}
	patch := client.MergeFromWithOptions(t.Live.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if err := o.Applier.Client.Patch(ctx, next, patch, client.FieldOwner(v1alpha1.ManagerGitSync)); err != nil {
		return nil, whereRefused(t, o.Applier.Source, fmt.Errorf("removing %s of %s: %w", plan.JoinNames(lost), t, err))
	}
	t.Live, t.Unchanged = next, false
	taken := &Note{v1alpha1.ReasonFieldConflict, fmt.Sprintf("%s: removed %s, which the branch does not say", t, plan.JoinNames(lost))}
	return taken, o.forgetGates(ctx, t)
}

// forgetGates empties the status of a BatchRelease that is taken over, where only signed
// approvals count. By that status, gates may be open that no signer has approved. The release
// under way goes on behind its first gate.
func (o Takeover) forgetGates(ctx context.Context, t *Target) error {
	if signed, _, _ := unstructured.NestedBool(t.Object.Object, "spec", "requireSignedApprovals"); !signed || !takeover.IsForeign(t.Live) {
		return nil
	}
	var br v1alpha1.BatchRelease
	if err := o.Own.Get(ctx, client.ObjectKeyFromObject(t.Live), &br); err != nil {
		return fmt.Errorf("getting %s: %w", t, err)
	}
	if br.ResourceVersion != t.Live.GetResourceVersion() {
		return takeover.ChangedMeanwhile(t)
	}
	br.Status = v1alpha1.BatchReleaseStatus{}
	if err := o.Status.Status().Update(ctx, &br, client.FieldOwner(v1alpha1.ManagerGitSync)); err != nil {
		return fmt.Errorf("emptying the status of %s: %w", t, err)
	}
	t.Live.SetResourceVersion(br.ResourceVersion)
	return nil
}

// displace deletes a BatchRelease that governs nothing and has the name of a plan.
func (o Takeover) displace(ctx context.Context, t *Target) (*Note, error) {
	uid := t.Live.GetUID()
	if err := inventory.DeleteUnchanged(ctx, o.Applier.Client, t.Live.DeepCopy()); client.IgnoreNotFound(err) != nil {
		return nil, whereRefused(t, o.Applier.Source, fmt.Errorf("removing the BatchRelease that was made by hand: %w", err))
	}
	done := &Note{v1alpha1.ReasonRecreated, fmt.Sprintf("%s, which was made by hand and governed nothing, was deleted and created again", t)}
	live, err := inventory.Get(ctx, o.Applier.Client, t.Entry())
	if err != nil {
		return done, err
	}
	if t.Live = live; live != nil && live.GetUID() == uid {
		t.Mode = AfterDeletion
	} else if live != nil {
		return done, takeover.ChangedMeanwhile(t)
	}
	return done, nil
}

func whereRefused(t *Target, gs *v1alpha1.GitSource, err error) error {
	if apierrors.IsConflict(err) {
		return err
	}
	return apiproblem.Or(apiproblem.Of(v1alpha1.ReasonApplyFailed, t.Object, gs, err), err)
}

// create makes a BatchRelease that is not there.
func (a *Applier) create(ctx context.Context, t *Target) (Change, error) {
	u := a.Manifest(t.Object)
	err := a.applyNew(ctx, u)
	if apierrors.IsConflict(err) {
		return Unchanged, takeover.ChangedMeanwhile(t)
	}
	if err != nil {
		return Unchanged, err
	}
	t.Applied = u
	return Created, nil
}
