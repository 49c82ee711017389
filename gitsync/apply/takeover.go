package apply

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/tranche-dev/tranche/gitsync/apiproblem"
	"github.com/tranche-dev/tranche/gitsync/fieldmanager"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// A user who may write BatchReleases may make one under the name that Git gives to a plan
// later. No policy guards it, for it has no labels of a GitSource. Server-side apply
// leaves what Git does not set: an approval, or an owner with which the garbage collector
// deletes the plan. So of such a BatchRelease gitsync keeps nothing that only Git or the
// controller says:
//
//   - If another plan of the source governs the Deployment, it governs nothing. It is
//     deleted and created again.
//   - Elsewhere it may have a release under way, which goes on. It loses its owners, its
//     finalizers and all of its spec that Git does not say, except for spec.paused; with
//     signers, its status, too. Only then it gets the labels.
//   - If it is not there yet, gitsync creates the plan. An apply would be merged into one
//     that a user makes at the same time.
//
// The source's own plans lose owners and approvals that Git does not say, at each sync.

// onlyGits are the fields in the spec of a BatchRelease that only Git and the
// controller says, and that Git may leave out.
var onlyGits = []string{"approval", "approvalsSince", "deploymentStrategy", "reviewApprovals", "requireSignedApprovals", "serviceAccountName"}

// disinherited is a BatchRelease of the cluster without what neither Git nor its user may
// have said, and what that is.
func disinherited(live *unstructured.Unstructured, wanted plan.Object, gs *v1alpha1.GitSource) (*unstructured.Unstructured, []string, error) {
	var lost []string
	next := live.DeepCopy()
	others, err := foreignSpec(live)
	if err != nil {
		return nil, nil, err
	}
	if len(next.GetOwnerReferences()) > 0 {
		next.SetOwnerReferences(nil)
		lost = append(lost, "metadata.ownerReferences")
	}
	spec, _, _ := unstructured.NestedMap(next.Object, "spec")
	says, _, _ := unstructured.NestedMap(wanted.Object, "spec")
	if inventory.IsOwned(live, gs) {
		for _, field := range onlyGits {
			if _, ok := spec[field]; ok && says[field] == nil && others.Has(field) {
				delete(spec, field)
				lost = append(lost, "spec."+field)
			}
		}
	} else {
		if len(next.GetFinalizers()) > 0 {
			next.SetFinalizers(nil)
			lost = append(lost, "metadata.finalizers")
		}
		lost = append(lost, keepSaid(spec, says, "spec")...)
	}
	next.Object["spec"] = spec
	return next, lost, nil
}

// foreignSpec returns which of [onlyGits] another manager than gitsync has written, or
// none. A field that gitsync alone has applied goes with the next apply.
func foreignSpec(live *unstructured.Unstructured) (sets.Set[string], error) {
	applied, err := fieldmanager.AppliedSpec(live, onlyGits...)
	if err != nil {
		return nil, err
	}
	foreign := sets.New(onlyGits...).Delete(applied...)
	for _, e := range live.GetManagedFields() {
		if e.Manager == v1alpha1.ManagerGitSync && e.Operation == metav1.ManagedFieldsOperationApply || e.FieldsV1 == nil {
			continue
		}
		set := &fieldpath.Set{}
		if err := set.FromJSON(e.FieldsV1.GetRawReader()); err != nil {
			return nil, fmt.Errorf("reading the managed fields of %s: %w", inventory.Of(live), err)
		}
		spec := set.WithPrefix(fieldmanager.Name("spec"))
		for _, name := range onlyGits {
			if spec.Members.Has(fieldmanager.Name(name)) || !spec.WithPrefix(fieldmanager.Name(name)).Empty() {
				foreign.Insert(name)
			}
		}
	}
	return foreign, nil
}

// keepSaid deletes the fields of an object that a manifest does not say, except for
// spec.paused, and returns their paths.
func keepSaid(object, says map[string]any, path string) []string {
	var lost []string
	for name, value := range object {
		at := path + "." + name
		said, ok := says[name]
		if !ok && at != "spec.paused" {
			delete(object, name)
			lost = append(lost, at)
			continue
		}
		inner, isMap := value.(map[string]any)
		saidInner, alsoMap := said.(map[string]any)
		if isMap && alsoMap {
			lost = append(lost, keepSaid(inner, saidInner, at)...)
		}
	}
	slices.Sort(lost)
	return lost
}

// isForeign reports whether a BatchRelease that is there is of no GitSource.
func isForeign(live *unstructured.Unstructured) bool {
	return live != nil && live.GetLabels()[v1alpha1.LabelSource] == ""
}

// Unclaimed returns a BatchRelease of the cluster without what only Git and the controller
// say, unless a policy has guarded it.
func Unclaimed(br *v1alpha1.BatchRelease) *v1alpha1.BatchRelease {
	if br == nil || br.Labels[v1alpha1.LabelSource] != "" {
		return br
	}
	br = br.DeepCopy()
	br.Spec.Commit, br.Spec.Approval, br.Spec.ApprovalsSince = "", nil, nil
	return br
}

// Takeover lets the plan of a target take the place of what the cluster has. That is a
// BatchRelease of its name that a user has made, or a plan that had another name.
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
	if isForeign(t.Live) && now != nil && now.Name != t.GetName() && inventory.IsOwned(now, o.Applier.Source) {
		return o.displace(ctx, t)
	}
	next, lost, err := disinherited(t.Live, t.Object, o.Applier.Source)
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
	if signed, _, _ := unstructured.NestedBool(t.Object.Object, "spec", "requireSignedApprovals"); !signed || !isForeign(t.Live) {
		return nil
	}
	var br v1alpha1.BatchRelease
	if err := o.Own.Get(ctx, client.ObjectKeyFromObject(t.Live), &br); err != nil {
		return fmt.Errorf("getting %s: %w", t, err)
	}
	if br.ResourceVersion != t.Live.GetResourceVersion() {
		return changedMeanwhile(t)
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
		return done, changedMeanwhile(t)
	}
	return done, nil
}

func whereRefused(t *Target, gs *v1alpha1.GitSource, err error) error {
	if apierrors.IsConflict(err) {
		return err
	}
	return apiproblem.Or(apiproblem.Of(v1alpha1.ReasonApplyFailed, t.Object, gs, err), err)
}

// changedMeanwhile has the source look again.
func changedMeanwhile(t *Target) error {
	resource := schema.GroupResource{Group: v1alpha1.Group, Resource: "batchreleases"}
	return apierrors.NewConflict(resource, t.GetName(), fmt.Errorf("it was written since it was read"))
}

// managerCreation is the field manager of a BatchRelease from its creation until its
// fields are gitsync's as after an apply.
const managerCreation = v1alpha1.ManagerGitSync + "-create"

// create makes a BatchRelease that is not there.
func (a *Applier) create(ctx context.Context, t *Target) (Change, error) {
	u := a.Manifest(t.Object)
	err := a.Client.Create(ctx, u, client.FieldOwner(managerCreation), client.FieldValidation(metav1.FieldValidationStrict))
	if apierrors.IsAlreadyExists(err) {
		return Unchanged, changedMeanwhile(t)
	}
	if err != nil {
		return Unchanged, err
	}
	t.Applied = u
	return Created, a.ownCreated(ctx, u)
}

// maxOwn is how often ownCreated tries beside other writes.
const maxOwn = 10

// ownCreated makes what a creation has set gitsync's, as an apply would have: what leaves
// the branch would else stay.
func (a *Applier) ownCreated(ctx context.Context, u *unstructured.Unstructured) error {
	for range maxOwn {
		raw, err := csaupgrade.UpgradeManagedFieldsPatch(u, sets.New(managerCreation), v1alpha1.ManagerGitSync)
		if err != nil || raw == nil {
			return err
		}
		err = a.Client.Patch(ctx, u.DeepCopy(), client.RawPatch(types.JSONPatchType, raw), client.FieldOwner(v1alpha1.ManagerGitSync))
		if !apierrors.IsConflict(err) {
			return client.IgnoreNotFound(err)
		}
		if err := a.Client.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	return nil // the next sync does it
}
