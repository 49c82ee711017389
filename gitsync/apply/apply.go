package apply

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/apiproblem"
	"github.com/tranche-dev/tranche/gitsync/duplicates"
	"github.com/tranche-dev/tranche/gitsync/fieldmanager"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/takeover"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// annotationForceTrue is the value of v1alpha1.AnnotationForce.
const annotationForceTrue = "true"

// Applier writes the objects of one commit.
type Applier struct {
	Source *v1alpha1.GitSource
	// Client writes as the account that the GitSource names.
	Client client.Client
	Commit string
}

// Change is what an apply has done to an object.
type Change int

const (
	Unchanged Change = iota
	Created
	Configured
	// Recreated objects were deleted before, since a field that Git changed is immutable.
	Recreated
)

// Manifest returns what is applied of an object: what Git says, without the fields that only
// the server sets. It has the labels of the source, unless it is a Deployment.
func (a *Applier) Manifest(o plan.Object) *unstructured.Unstructured {
	u := WithoutServerFields(o.Unstructured)
	if o.GroupVersionKind().GroupKind() == inventory.DeploymentKind {
		return u // bears nothing of ours
	}
	labels := map[string]string{}
	maps.Copy(labels, u.GetLabels())
	maps.Copy(labels, inventory.Labels(a.Source))
	u.SetLabels(labels)
	return u
}

// WithoutServerFields returns a copy of an object without the fields that only the API server
// sets.
func WithoutServerFields(u *unstructured.Unstructured) *unstructured.Unstructured {
	u = u.DeepCopy()
	for _, field := range []string{"managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "selfLink"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(u.Object, "status")
	return u
}

// Body returns the manifest without the fields that others write.
func (a *Applier) Body(t *Target) *unstructured.Unstructured {
	u := a.Manifest(t.Object)
	if t.Restored != nil {
		// Spec of a Deployment is a map, or its dry run has failed.
		_ = unstructured.SetNestedMap(u.Object, t.Restored.template, "spec", "template")
	}
	if t.Mode == ExceptRollout {
		for _, field := range fieldmanager.RolloutFields {
			unstructured.RemoveNestedField(u.Object, "spec", field)
		}
	}
	// On a first install the replicas of Git are a better start than 1.
	if t.KeepsReplicas() {
		unstructured.RemoveNestedField(u.Object, "spec", "replicas")
	}
	return u
}

// DryRun has the API server check an object: schema, defaults, admission,
// rights. Nothing is written. An error is a conflict: rollout has held the Deployment, or
// handed it back, since it was read.
func (a *Applier) DryRun(ctx context.Context, t *Target) (plan.Problems, error) {
	if p := t.forbidden(); p != nil {
		return plan.Problems{p}, nil
	}
	switch t.Mode {
	case AfterDeletion:
		return nil, nil
	case Skip:
		return apiproblem.Of(v1alpha1.ReasonDryRunFailed, t.Object, a.Source, a.mayWrite(ctx, t)), nil
	case Full, ExceptRollout, AfterHandBack:
	}
	var err error
	if t.isSharedWithRollout() {
		err = errors.Join(a.DryRunRollout(ctx, t), a.dryRunRest(ctx, t))
		if err != nil && a.hasMoved(ctx, t) {
			return nil, apierrors.NewConflict(schema.GroupResource{Group: "apps", Resource: "deployments"}, t.GetName(),
				errors.New("it has changed since it was read"))
		}
	} else {
		err = a.dryRunManifest(ctx, t)
	}
	if err != nil && a.IsHeldSince(ctx, t) {
		return nil, t.HeldSince()
	}
	if apiproblem.IsImmutable(err) && MayRecreate(t) {
		err = a.dryRunAnew(ctx, t)
	}
	ps := apiproblem.Of(v1alpha1.ReasonDryRunFailed, t.Object, a.Source, err)
	if t.Restored != nil && len(ps) == 0 {
		ps = a.dryRunRestored(ctx, t)
	}
	t.hintAtPlan(ps)
	return ps, nil
}

// isSharedWithRollout reports whether rollout writes fields of a Deployment, or has
// written them.
func (t *Target) isSharedWithRollout() bool {
	return t.Live != nil && t.GroupKind() == inventory.DeploymentKind && (t.Mode != Full || fieldmanager.HasRolloutFields(t.Live))
}

// dryRunManifest tries the whole manifest. It sets which fields have other values of other
// managers, and whether an apply would change nothing.
func (a *Applier) dryRunManifest(ctx context.Context, t *Target) error {
	tried := a.Manifest(t.Object)
	err := a.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(tried), client.FieldOwner(v1alpha1.ManagerGitSync), client.DryRunAll)
	if t.Conflicts = conflictsOf(err); len(t.Conflicts) > 0 {
		tried = a.Manifest(t.Object)
		err = a.DryRunApply(ctx, tried)
	}
	t.Unchanged = err == nil && t.Mode == Full && !t.Autoscaled && sameObject(tried, t.Live) && !t.hasMore(a.Source)
	return err
}

// hintAtPlan replaces the hint at force. Force is not for a Deployment with a
// plan, since all its pods would go at once. It is not for a plan: the native controller
// would bring all pods up before the next plan exists. Nor is it for what holds other objects.
func (t *Target) hintAtPlan(ps plan.Problems) {
	switch {
	case t.Release != nil:
		hintAtImmutable(ps,
			"a Deployment with a plan is not deleted: put the old value back, bring the new one under another name beside it, "+
				"or take its plan away before")
	case t.GroupKind() == inventory.ReleaseKind:
		hintAtImmutable(ps,
			"a plan is not deleted while the branch has one for its Deployment: put the old value back, or give the new plan another name")
	case t.GroupKind() == inventory.CRDKind:
		hintAtImmutable(ps,
			"a CustomResourceDefinition is not deleted, since its objects would go with it: put the old value back, or delete it yourself")
	}
}

// hasMore reports whether a BatchRelease has what it may not have, though an apply would
// change nothing.
func (t *Target) hasMore(gs *v1alpha1.GitSource) bool {
	if t.GroupKind() != inventory.ReleaseKind || t.Live == nil {
		return false
	}
	_, more, err := takeover.Disinherited(t.Live, t.Object, gs)
	return err != nil || len(more) > 0 // an apply says what is wrong
}

// forbidden says what may not be in a branch. A write to what a controller of the cluster
// keeps of a Deployment would avoid its gates. An object whose owners are gone is deleted by
// the garbage collector, and a namespace with all its Deployments. The API
// server creates one with the deletionTimestamp that a server-side apply has.
func (t *Target) forbidden() *plan.Problem {
	if len(t.GetOwnerReferences()) > 0 {
		return t.Problem(plan.ReasonInvalidManifest, "metadata.ownerReferences: where the owners are gone, the garbage "+
			"collector deletes the object and what is in it", "remove them: the UID of an owner is of one cluster")
	}
	for _, field := range []string{"deletionTimestamp", "deletionGracePeriodSeconds"} {
		if value, _, _ := unstructured.NestedFieldNoCopy(t.Object.Object, "metadata", field); value != nil {
			return t.Problem(plan.ReasonInvalidManifest, "metadata."+field+": the API server would keep the object for ever as one that "+
				"is being deleted", "remove it from the manifest")
		}
	}
	if t.adopter != "" && t.controller() == nil {
		return t.Problem(plan.ReasonInvalidManifest, "metadata.labels: the selector of Deployment "+t.adopter+
			" matches them, so that it would adopt the ReplicaSet, and its release would be resized past the gates", "give it other labels")
	}
	switch t.GroupKind() {
	case inventory.RevisionKind:
		return t.Problem(plan.ReasonInvalidManifest, "a ControllerRevision is the record of a controller", "remove it from the branch")
	case inventory.ReplicaSetKind, inventory.PodKind:
		if owner := t.controller(); owner != nil {
			return t.Problem(plan.ReasonInvalidManifest, "it is controlled by "+owner.Kind+" "+owner.Name,
				"remove it from the branch, and change that instead")
		}
	}
	return nil
}

// controller is the owner that controls the live object; nil without one.
func (t *Target) controller() *metav1.OwnerReference {
	if t.Live == nil {
		return nil
	}
	return metav1.GetControllerOf(t.Live)
}

// hintAtImmutable sets the hint of the problems that a field may not change.
func hintAtImmutable(ps plan.Problems, hint string) {
	for _, p := range ps {
		if apiproblem.IsImmutableMessage(p.Err.Error()) {
			p.Hint = hint
		}
	}
}

// trialName is appended to the name of an object whose re-creation is tried.
const trialName = "-trial"

// dryRunAnew tries to create an object that is there, under another name. An object that
// is deleted and cannot be created again is lost. A value that two objects may not share is
// no reason against it.
func (a *Applier) dryRunAnew(ctx context.Context, t *Target) error {
	u := a.Manifest(t.Object)
	u.SetName(u.GetName()[:min(len(u.GetName()), validation.DNS1123LabelMaxLength-len(trialName))] + trialName)
	err := a.Client.Create(ctx, u, client.DryRunAll, client.FieldOwner(v1alpha1.ManagerGitSync))
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if err == nil || !ok || status.Status().Details == nil {
		return err
	}
	for _, c := range status.Status().Details.Causes {
		if !strings.HasPrefix(c.Field, "metadata.name") && !strings.Contains(c.Message, "already allocated") {
			return err
		}
	}
	if len(status.Status().Details.Causes) > 0 {
		return nil
	}
	return err
}

// sameObject reports whether two answers of the API server are about the same
// object in the same state.
func sameObject(a, b *unstructured.Unstructured) bool {
	if a == nil || b == nil || a.GetUID() != b.GetUID() {
		return false
	}
	a, b = a.DeepCopy(), b.DeepCopy()
	a.SetResourceVersion("") // a dry-run need not have one
	b.SetResourceVersion("")
	return equality.Semantic.DeepEqual(a.Object, b.Object)
}

// hasMoved reports whether the spec of an object is another one than was read, or the object is
// gone.
func (a *Applier) hasMoved(ctx context.Context, t *Target) bool {
	now := &unstructured.Unstructured{}
	now.SetGroupVersionKind(t.Live.GroupVersionKind())
	err := a.Client.Get(ctx, client.ObjectKeyFromObject(t.Live), now)
	return apierrors.IsNotFound(err) || err == nil && now.GetGeneration() != t.Live.GetGeneration()
}

// IsHeldSince reports whether rollout has taken the hold of a Deployment since it was
// read. A policy then refuses what is not written to a held one, and names another cause.
func (a *Applier) IsHeldSince(ctx context.Context, t *Target) bool {
	if t.GroupKind() != inventory.DeploymentKind || t.Live == nil || v1alpha1.HasHeld(t.Live.GetLabels()) {
		return false
	}
	now, err := inventory.Get(ctx, a.Client, t.Entry())
	return err == nil && now != nil && v1alpha1.HasHeld(now.GetLabels())
}

// HeldSince returns the conflict after which the next sync reads the Deployment again.
func (t *Target) HeldSince() error {
	return apierrors.NewConflict(schema.GroupResource{Group: "apps", Resource: "deployments"}, t.GetName(),
		errors.New("it is held since it was read"))
}

// DryRunApply tries an apply of u, and sets u to the answer.
func (a *Applier) DryRunApply(ctx context.Context, u *unstructured.Unstructured) error {
	return a.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(v1alpha1.ManagerGitSync),
		client.ForceOwnership, client.DryRunAll)
}

// mayWrite returns an error where the account could not write an object that is left
// alone. Such an object is recorded as the source's, and refused to other sources.
func (a *Applier) mayWrite(ctx context.Context, t *Target) error {
	u := a.Manifest(t.Object)
	if t.Live == nil {
		return a.DryRunApply(ctx, u)
	}
	return a.Client.Patch(ctx, u, client.RawPatch(types.MergePatchType, []byte("{}")), client.FieldOwner(v1alpha1.ManagerGitSync),
		client.DryRunAll)
}

// DryRunRollout tries the write that rollout will make one day: the template,
// and the strategy, put in place of those that are there. An apply of the full
// manifest would merge lists: a container that Git renamed would be tried together with the
// one that it was.
//
// The Deployment may be held: it stays so in the trial, since a policy refuses
// a held Deployment that is Recreate and not paused.
func (a *Applier) DryRunRollout(ctx context.Context, t *Target) error {
	var patch []map[string]any
	for _, field := range []string{"template", "strategy"} {
		v, ok, _ := unstructured.NestedFieldCopy(t.Object.Object, "spec", field)
		if !ok || v == nil {
			continue
		}
		patch = append(patch, map[string]any{"op": "replace", "path": "/spec/" + field, "value": v})
	}
	if len(patch) == 0 {
		return nil
	}
	raw, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encoding the template of %s: %w", t, err)
	}
	return a.Client.Patch(ctx, t.Live.DeepCopy(), client.RawPatch(types.JSONPatchType, raw),
		client.FieldOwner(v1alpha1.ManagerRollout), client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
}

// dryRunRest tries the rest of the manifest, with the template, strategy and
// hold that the Deployment has.
func (a *Applier) dryRunRest(ctx context.Context, t *Target) error {
	u, err := a.Rest(t)
	if err != nil {
		return err
	}
	sent := templateOf(u)
	err = a.DryRunApply(ctx, u)
	if err != nil || t.Mode != ExceptRollout || v1alpha1.HasHeld(t.Live.GetLabels()) {
		return err
	}
	kept := templateOf(t.Live)
	if !equality.Semantic.DeepEqual(sent, kept) || equality.Semantic.DeepEqual(templateOf(u), kept) {
		return nil // or the Deployment has duplicates
	}
	return t.withoutRelease(u)
}

// templateOf returns a copy of the pod template, without nulls.
func templateOf(u *unstructured.Unstructured) map[string]any {
	template, _, _ := unstructured.NestedMap(u.Object, "spec", "template")
	fieldmanager.WithoutNulls(template)
	return template
}

// withoutRelease is asked where admission changes the pod template in a write that is without
// it: the native controller would replace all pods at once. The target is left alone if nothing
// else would change. The policy then changes the template that the next release brings.
func (t *Target) withoutRelease(answer *unstructured.Unstructured) error {
	was, now := t.Live.DeepCopy(), answer
	for _, u := range []*unstructured.Unstructured{was, now} {
		unstructured.RemoveNestedField(u.Object, "spec", "template")
		u.SetManagedFields(nil)
		u.SetGeneration(0)
	}
	if t.Unchanged = sameObject(was, now); t.Unchanged {
		return nil
	}
	return t.Problem(v1alpha1.ReasonDryRunFailed,
		"an admission policy or webhook changes spec.template in this write. The native controller would replace all pods at once, without gates",
		"exempt the Deployment from it; or bring another pod template first, by a commit that changes nothing else of the Deployment: "+
			"it is released in steps, as the policy changes it")
}

// Rest returns the manifest with the values that the Deployment has in rollout's fields, and
// with the label of its hold. A Deployment may have duplicates there, which are refused in an apply.
// Rest then leaves these fields out. Those that gitsync has applied are as in the manifest, since
// an apply without them would remove them. Duplicates of the manifest are an error, though
// rollout could write them: no other write refuses them.
func (a *Applier) Rest(t *Target) (*unstructured.Unstructured, error) {
	if err := duplicates.Check(t.Object).Err(); err != nil {
		return nil, err
	}
	u := a.Manifest(t.Object)
	if held := t.Live.GetLabels(); v1alpha1.HasHeld(held) {
		labels := u.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[v1alpha1.LabelHeld] = held[v1alpha1.LabelHeld]
		u.SetLabels(labels)
	}
	kept := u.DeepCopy()
	if err := KeepLive(kept, t.Live, fieldmanager.RolloutFields...); err != nil {
		return nil, err
	}
	if len(duplicates.Check(plan.Object{Unstructured: kept})) == 0 {
		fieldmanager.WithoutNulls(kept.Object)
		return kept, nil
	}
	applied, err := fieldmanager.AppliedSpec(t.Live, fieldmanager.RolloutFields...)
	if err != nil {
		return nil, err
	}
	for _, field := range fieldmanager.RolloutFields {
		if !slices.Contains(applied, field) {
			unstructured.RemoveNestedField(u.Object, "spec", field)
		}
	}
	fieldmanager.WithoutNulls(u.Object)
	return u, nil
}

// KeepLive puts fields of the live spec in place of those of a manifest.
func KeepLive(u, live *unstructured.Unstructured, fields ...string) error {
	for _, field := range fields {
		unstructured.RemoveNestedField(u.Object, "spec", field)
		v, ok, _ := unstructured.NestedFieldCopy(live.Object, "spec", field)
		if !ok || v == nil {
			continue
		}
		if err := unstructured.SetNestedField(u.Object, v, "spec", field); err != nil {
			return fmt.Errorf("setting spec.%s of %s: %w", field, inventory.Of(u), err)
		}
	}
	return nil
}

// Apply writes an object.
func (a *Applier) Apply(ctx context.Context, t *Target) (Change, error) {
	switch t.Mode {
	case Skip, AfterHandBack, AfterDeletion:
		return Unchanged, nil
	case Full, ExceptRollout:
	}
	if t.Unchanged {
		return Unchanged, nil
	}
	switch {
	case t.GroupKind() == inventory.ReleaseKind:
		return a.applyRelease(ctx, t)
	case t.Live == nil && t.Release != nil:
		return a.applyFirst(ctx, t)
	case t.Mode == Full && t.isSharedWithRollout():
		live := t.Live.DeepCopy()
		if err := fieldmanager.TakeBack(ctx, a.Client, live); err != nil {
			return Unchanged, err
		}
		t.Live, t.HandedOver = live, true
		return a.applyOwn(ctx, t, live.GetResourceVersion())
	default:
		return a.applyOwn(ctx, t, "")
	}
}

// applyRelease applies a BatchRelease.
func (a *Applier) applyRelease(ctx context.Context, t *Target) (Change, error) {
	switch {
	case t.Live == nil:
		return a.create(ctx, t)
	case takeover.IsForeign(t.Live):
		return a.applyOwn(ctx, t, t.Live.GetResourceVersion()) // it is as it was when it was read
	}
	return a.applyOwn(ctx, t, "")
}

// applyFirst creates a governed Deployment. The first install is whole and without a hold
// (H21). Right after it, gitsync hands rollout's fields over. One that was made since it was
// looked for stays as it is, with a conflict: what it runs is its stable revision.
func (a *Applier) applyFirst(ctx context.Context, t *Target) (Change, error) {
	u := a.Body(t)
	if err := a.applyNew(ctx, u); err != nil {
		return Unchanged, err
	}
	t.Live, t.Mode = u, ExceptRollout
	err := a.handOver(ctx, t)
	t.Applied = t.Live
	return Created, err
}

// applyOwn applies what is gitsync's of an object.
func (a *Applier) applyOwn(ctx context.Context, t *Target, version string) (Change, error) {
	if err := a.handOver(ctx, t); err != nil {
		return Unchanged, err
	}
	if t.Live != nil {
		live, err := fieldmanager.Claim(ctx, a.Client, t.Live)
		if err != nil {
			return Unchanged, err
		}
		t.Live = live
	}
	u := a.Body(t)
	u.SetResourceVersion(version)
	if t.Live != nil && t.GroupKind() == inventory.ReleaseKind {
		u.SetUID(t.Live.GetUID()) // the apply of one that is gone by now is a conflict
	}
	err := a.Write(ctx, u)
	if apierrors.IsInvalid(err) && t.Mode == ExceptRollout && t.Live != nil {
		u, err = a.applyAgain(ctx, t, err)
	}
	if apiproblem.IsImmutable(err) && MayRecreate(t) {
		return a.recreate(ctx, t)
	}
	if err != nil {
		return Unchanged, err
	}
	t.Applied = u
	switch {
	case t.Live == nil || t.Live.GetUID() != u.GetUID(): // it may be deleted after it was read
		return Created, nil
	case u.GetResourceVersion() == t.Live.GetResourceVersion():
		return Unchanged, nil
	default:
		return Configured, nil
	}
}

// applyAgain applies a governed Deployment that was refused, where its fields have another
// owner since they were read. For rollout hands a Deployment back whose plan was deleted, and
// gives gitsync its template. An apply without the template would remove it.
// Otherwise applyAgain returns the refusal.
func (a *Applier) applyAgain(ctx context.Context, t *Target, refusal error) (*unstructured.Unstructured, error) {
	live, err := inventory.Get(ctx, a.Client, t.Entry())
	if err != nil || live == nil {
		return nil, cmp.Or(err, refusal)
	}
	if owned, err := fieldmanager.AppliedSpec(live, fieldmanager.RolloutFields...); err != nil || len(owned) == 0 {
		return nil, cmp.Or(err, refusal)
	}
	t.Live = live
	if err := a.handOver(ctx, t); err != nil {
		return nil, err
	}
	u := a.Body(t)
	return u, a.Write(ctx, u)
}

// handOver lets go of the fields that are others' and that gitsync has applied
// before.
func (a *Applier) handOver(ctx context.Context, t *Target) error {
	if t.Live == nil {
		return nil
	}
	hand := func(manager string, names ...string) error {
		live, err := fieldmanager.HandOver(ctx, a.Client, t.Live, manager, names)
		if err == nil && live.GetResourceVersion() != t.Live.GetResourceVersion() {
			t.Live, t.HandedOver = live, true
		}
		return err
	}
	if t.Mode == ExceptRollout {
		if err := hand(v1alpha1.ManagerRollout, fieldmanager.RolloutFields...); err != nil {
			return err
		}
	}
	if t.KeepsReplicas() {
		return hand(fieldmanager.ManagerReplicas, "replicas")
	}
	return nil
}

// Write applies u, and sets it to the answer. An apply that changes nothing leaves the
// resourceVersion as it is.
func (a *Applier) Write(ctx context.Context, u *unstructured.Unstructured) error {
	return a.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(v1alpha1.ManagerGitSync), client.ForceOwnership)
}

// MayRecreate reports whether an annotation of the manifest lets an object be deleted and
// created again. An annotation in the cluster does not count. An
// object that holds other objects is never deleted so: they would go with it.
func MayRecreate(t *Target) bool {
	switch t.GroupKind() {
	case inventory.ReleaseKind, inventory.NamespaceKind, inventory.CRDKind:
		return false
	}
	return t.Live != nil && t.Release == nil && t.GetAnnotations()[v1alpha1.AnnotationForce] == annotationForceTrue
}

// goneWithin is how long an object may take to go before it is created again.
const goneWithin = 30 * time.Second

// FinalizersAdvice says what to look at if finalizers keep an object. The API server has set
// that of a foreground deletion, and removes it once the dependents that block it are gone.
func FinalizersAdvice(finalizers []string) string {
	if slices.Contains(finalizers, metav1.FinalizerDeleteDependents) {
		return "foregroundDeletion waits for the objects that it owns, as ReplicaSets and pods: see those of its namespace that " +
			"are being deleted, and their finalizers"
	}
	return "see to who has set them"
}

func (a *Applier) recreate(ctx context.Context, t *Target) (Change, error) {
	var err error
	if gk := t.GroupKind(); gk == inventory.ReplicaSetKind || gk == inventory.PodKind {
		err = inventory.DeleteUnchanged(ctx, a.Client, t.Live) // a Deployment may have adopted it since it was read
	} else {
		err = inventory.Delete(ctx, a.Client, t.Live)
	}
	if err := client.IgnoreNotFound(err); err != nil {
		return Unchanged, err
	}
	var finalizers []string
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, goneWithin, true, func(ctx context.Context) (bool, error) {
		live, err := inventory.Get(ctx, a.Client, t.Entry())
		if live != nil {
			finalizers = live.GetFinalizers()
		}
		return live == nil, err
	})
	if err != nil && len(finalizers) > 0 {
		return Unchanged, t.Problem(v1alpha1.ReasonApplyFailed,
			"it is deleted, to be created again, and does not go: it has the finalizers "+plan.JoinNames(finalizers), FinalizersAdvice(finalizers))
	}
	if err != nil {
		return Unchanged, fmt.Errorf("waiting for %s to be gone: %w", t, err)
	}
	u := a.Manifest(t.Object)
	if err := a.Write(ctx, u); err != nil {
		return Recreated, err
	}
	t.Applied = u
	return Recreated, nil
}

// establishedWithin is how long the API server may take to serve a new kind.
const establishedWithin = 30 * time.Second

// AwaitCRD waits until the API server serves what a CRD defines.
func (a *Applier) AwaitCRD(ctx context.Context, t *Target) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, establishedWithin, true, func(ctx context.Context) (bool, error) {
		live, err := inventory.Get(ctx, a.Client, t.Entry())
		if err != nil || live == nil {
			return false, err
		}
		if status, because := conditionOf(live, "NamesAccepted"); status == "False" {
			return false, t.Problem(v1alpha1.ReasonApplyFailed, "the API server does not accept its names: "+because,
				"take other names, or remove the CustomResourceDefinition that has them")
		}
		return IsEstablished(live), nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s to be established: %w", t, err)
	}
	return nil
}

// IsEstablished reports whether the API server serves what a CRD defines.
func IsEstablished(crd *unstructured.Unstructured) bool {
	status, _ := conditionOf(crd, "Established")
	return status == "True"
}

// conditionOf returns status and message of a condition; empty: there is none.
func conditionOf(u *unstructured.Unstructured, kind string) (status, message string) {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == kind {
			status, _, _ = unstructured.NestedString(m, "status")
			message, _, _ = unstructured.NestedString(m, "message")
		}
	}
	return status, message
}

// Problem returns a problem of the object as a whole.
func (t *Target) Problem(reason, fact, hint string) *plan.Problem {
	return &plan.Problem{Reason: reason, Where: apiproblem.Where(t.Object), Err: errors.New(fact), Hint: hint, Retry: true}
}

// ReleaseObject returns a BatchRelease as it is applied, with the file of its plan.
func ReleaseObject(br *v1alpha1.BatchRelease, file string) (plan.Object, error) {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(br)
	if err != nil {
		return plan.Object{}, fmt.Errorf("encoding BatchRelease %s/%s: %w", br.Namespace, br.Name, err)
	}
	fieldmanager.WithoutNulls(m)
	return plan.Object{Unstructured: &unstructured.Unstructured{Object: m}, File: file}, nil
}

// conflictsOf says of which fields other managers have other values than those
// of an apply that was refused for it.
func conflictsOf(err error) []string {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.Status().Details == nil {
		return nil
	}
	var said []string
	for _, c := range status.Status().Details.Causes {
		if c.Type == metav1.CauseTypeFieldManagerConflict {
			said = append(said, strings.TrimPrefix(c.Field, ".")+" ("+strings.TrimPrefix(c.Message, "conflict with ")+")")
		}
	}
	return said
}

// String returns the change as in logs.
func (c Change) String() string {
	return [...]string{"unchanged", "created", "configured", "recreated"}[c]
}
