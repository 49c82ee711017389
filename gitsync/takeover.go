package gitsync

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
//   - Where another plan of the source governs the Deployment, it is deleted, and made
//     again: it governs nothing.
//   - Elsewhere it may have a release under way, which goes on. It loses its owners, its
//     finalizers and all of its spec that Git does not say, except for spec.paused; with
//     signers, its status, too. Only then it gets the labels.
//   - Where it is not there yet, gitsync creates the plan. An apply would be merged into
//     one that a user makes at the same time.
//
// The source's own plans lose owners and approvals that Git does not say, at each look.

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
// none. What gitsync alone has applied goes with the next apply.
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

// unclaimed is a BatchRelease of the cluster without what only Git and the controller say,
// where no policy has seen to it that it was they.
func unclaimed(br *v1alpha1.BatchRelease) *v1alpha1.BatchRelease {
	if br == nil || br.Labels[v1alpha1.LabelSource] != "" {
		return br
	}
	br = br.DeepCopy()
	br.Spec.Commit, br.Spec.Approval, br.Spec.ApprovalsSince = "", nil, nil
	return br
}

// claim is how the BatchRelease of a target loses what it may not hand on.
type claim struct {
	*applier
	own    client.Reader // reads as the controller
	status client.Client // writes as the controller
}

// note is what a user has to know, with the reason of the event.
type note struct{ reason, message string }

// disinherit takes from the BatchRelease of a target what it may not hand on, and returns
// what it took, also with an error. now is the one that governs the Deployment; nil: none.
func (c claim) disinherit(ctx context.Context, t *target, now *v1alpha1.BatchRelease) (*note, error) {
	if t.live == nil || t.way != plainly {
		return nil, nil
	}
	if isForeign(t.live) && now != nil && now.Name != t.GetName() && inventory.IsOwned(now, c.gs) {
		return c.displace(ctx, t)
	}
	next, lost, err := disinherited(t.live, t.Object, c.gs)
	if err != nil {
		return nil, err
	}
	if len(lost) == 0 {
		return nil, c.forgetGates(ctx, t)
	}
	patch := client.MergeFromWithOptions(t.live.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if err := c.c.Patch(ctx, next, patch, client.FieldOwner(v1alpha1.ManagerGitSync)); err != nil {
		return nil, whereRefused(t, c.gs, fmt.Errorf("removing %s of %s: %w", plan.JoinNames(lost), t, err))
	}
	t.live, t.asIs = next, false
	taken := &note{v1alpha1.ReasonFieldConflict, fmt.Sprintf("%s: removed %s, which the branch does not say", t, plan.JoinNames(lost))}
	return taken, c.forgetGates(ctx, t)
}

// forgetGates empties the status of a BatchRelease that is taken over, where only signed
// approvals count: by it, gates may be open that no signer has approved. The release
// under way goes on behind its first gate.
func (c claim) forgetGates(ctx context.Context, t *target) error {
	if signed, _, _ := unstructured.NestedBool(t.Object.Object, "spec", "requireSignedApprovals"); !signed || !isForeign(t.live) {
		return nil
	}
	var br v1alpha1.BatchRelease
	if err := c.own.Get(ctx, client.ObjectKeyFromObject(t.live), &br); err != nil {
		return fmt.Errorf("getting %s: %w", t, err)
	}
	if br.ResourceVersion != t.live.GetResourceVersion() {
		return changedMeanwhile(t)
	}
	br.Status = v1alpha1.BatchReleaseStatus{}
	if err := c.status.Status().Update(ctx, &br, client.FieldOwner(v1alpha1.ManagerGitSync)); err != nil {
		return fmt.Errorf("emptying the status of %s: %w", t, err)
	}
	t.live.SetResourceVersion(br.ResourceVersion)
	return nil
}

// displace deletes a BatchRelease that governs nothing and has the name of a plan.
func (c claim) displace(ctx context.Context, t *target) (*note, error) {
	uid, version := t.live.GetUID(), t.live.GetResourceVersion()
	err := c.c.Delete(ctx, t.live.DeepCopy(), client.Preconditions{UID: &uid, ResourceVersion: &version}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return nil, whereRefused(t, c.gs, fmt.Errorf("deleting %s, which was made by hand: %w", t, err))
	}
	done := &note{v1alpha1.ReasonRecreated, fmt.Sprintf("%s, which was made by hand and governed nothing, was deleted and created again", t)}
	live, err := inventory.Get(ctx, c.c, t.entry())
	if err != nil {
		return done, err
	}
	if t.live = live; live != nil && live.GetUID() == uid {
		t.way = onceGone
	} else if live != nil {
		return done, changedMeanwhile(t)
	}
	return done, nil
}

func whereRefused(t *target, gs *v1alpha1.GitSource, err error) error {
	if apierrors.IsConflict(err) {
		return err
	}
	return apiproblem.Or(apiproblem.Of(v1alpha1.ReasonApplyFailed, t.Object, gs, err), err)
}

// changedMeanwhile has the source look again.
func changedMeanwhile(t *target) error {
	resource := schema.GroupResource{Group: v1alpha1.Group, Resource: "batchreleases"}
	return apierrors.NewConflict(resource, t.GetName(), fmt.Errorf("it was written since it was read"))
}

// managerCreation is the field manager of a BatchRelease from its creation until its
// fields are gitsync's as after an apply.
const managerCreation = v1alpha1.ManagerGitSync + "-create"

// create makes a BatchRelease that is not there.
func (a *applier) create(ctx context.Context, t *target) (change, error) {
	u := a.manifest(t.Object)
	err := a.c.Create(ctx, u, client.FieldOwner(managerCreation), client.FieldValidation(metav1.FieldValidationStrict))
	if apierrors.IsAlreadyExists(err) {
		return unchanged, changedMeanwhile(t)
	}
	if err != nil {
		return unchanged, err
	}
	t.applied = u
	return created, a.ownCreated(ctx, u)
}

// maxOwn is how often ownCreated tries beside other writes.
const maxOwn = 10

// ownCreated makes what a creation has set gitsync's, as an apply would have: what leaves
// the branch would else stay.
func (a *applier) ownCreated(ctx context.Context, u *unstructured.Unstructured) error {
	for range maxOwn {
		raw, err := csaupgrade.UpgradeManagedFieldsPatch(u, sets.New(managerCreation), v1alpha1.ManagerGitSync)
		if err != nil || raw == nil {
			return err
		}
		err = a.c.Patch(ctx, u.DeepCopy(), client.RawPatch(types.JSONPatchType, raw), client.FieldOwner(v1alpha1.ManagerGitSync))
		if !apierrors.IsConflict(err) {
			return client.IgnoreNotFound(err)
		}
		if err := a.c.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	return nil // the next look does it
}
