package gitsync

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
	"github.com/tranche-dev/tranche/gitsync/fieldmanager"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// annotationForceTrue is the value of v1alpha1.AnnotationForce.
const annotationForceTrue = "true"

// applier writes the objects of one commit.
type applier struct {
	gs     *v1alpha1.GitSource
	c      client.Client // as the account that the GitSource names
	commit string
}

// change is what an apply did.
type change int

const (
	unchanged change = iota
	created
	configured
	recreated
)

// manifest is what is applied of an object: what Git says, without what only
// the server sets, and with the labels of the source, unless it is a Deployment.
func (a *applier) manifest(o plan.Object) *unstructured.Unstructured {
	u := withoutServersOwn(o.Unstructured)
	if o.GroupVersionKind().GroupKind() == inventory.DeploymentKind {
		return u // bears nothing of ours
	}
	labels := map[string]string{}
	maps.Copy(labels, u.GetLabels())
	maps.Copy(labels, inventory.Labels(a.gs))
	u.SetLabels(labels)
	return u
}

// withoutServersOwn is an object without what only the API server sets.
func withoutServersOwn(u *unstructured.Unstructured) *unstructured.Unstructured {
	u = u.DeepCopy()
	for _, field := range []string{"managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "selfLink"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(u.Object, "status")
	return u
}

// body is the manifest, without what others write.
func (a *applier) body(t *target) *unstructured.Unstructured {
	u := a.manifest(t.Object)
	if t.restored != nil {
		// Spec of a Deployment is a map, or its dry run has failed.
		_ = unstructured.SetNestedMap(u.Object, t.restored.template, "spec", "template")
	}
	if t.way == asGoverned {
		for _, field := range fieldmanager.RolloutFields {
			unstructured.RemoveNestedField(u.Object, "spec", field)
		}
	}
	// On a first install the replicas of Git are a better start than 1.
	if t.keepsReplicas() {
		unstructured.RemoveNestedField(u.Object, "spec", "replicas")
	}
	return u
}

// dryRun has the API server check an object: schema, defaults, admission,
// rights. Nothing is written. Its error is a conflict: what was tried is about
// a Deployment that has been held or handed back meanwhile.
func (a *applier) dryRun(ctx context.Context, t *target) (plan.Problems, error) {
	if p := t.forbidden(); p != nil {
		return plan.Problems{p}, nil
	}
	var err error
	switch {
	case t.way == onceGone:
		return nil, nil
	case t.way == notAtAll:
		return apiproblem.Of(v1alpha1.ReasonDryRunFailed, t.Object, a.gs, a.mayWrite(ctx, t)), nil
	case t.live != nil && t.groupKind() == inventory.DeploymentKind && (t.way != plainly || fieldmanager.HasRolloutFields(t.live)):
		err = errors.Join(a.dryRunRollout(ctx, t), a.dryRunRest(ctx, t))
		if err != nil && a.hasMoved(ctx, t) {
			return nil, apierrors.NewConflict(schema.GroupResource{Group: "apps", Resource: "deployments"}, t.GetName(), errors.New("it has changed since it was read"))
		}
	default:
		tried := a.manifest(t.Object)
		err = a.c.Apply(ctx, client.ApplyConfigurationFromUnstructured(tried), client.FieldOwner(v1alpha1.ManagerGitSync), client.DryRunAll)
		if t.conflicts = conflictsOf(err); len(t.conflicts) > 0 {
			tried = a.manifest(t.Object)
			err = a.dryRunApply(ctx, tried)
		}
		t.asIs = err == nil && t.way == plainly && !t.autoscaled && sameObject(tried, t.live) && !a.hasMore(t)
	}
	if err != nil && a.isHeldSince(ctx, t) {
		return nil, t.heldSince()
	}
	if apiproblem.IsImmutable(err) && mayRecreate(t) {
		err = a.dryRunAnew(ctx, t)
	}
	ps := apiproblem.Of(v1alpha1.ReasonDryRunFailed, t.Object, a.gs, err)
	if t.restored != nil && len(ps) == 0 {
		ps = a.dryRunRestored(ctx, t)
	}
	switch {
	case t.release != nil:
		hintAtPlan(ps, "a Deployment with a plan is not deleted: put the old value back, give the new one another name, or take its plan away before")
	case t.groupKind() == inventory.ReleaseKind:
		hintAtPlan(ps, "a plan is not deleted while the branch has one for its Deployment: put the old value back, or give the new plan another name")
	case t.groupKind() == inventory.CRDKind:
		hintAtPlan(ps, "a CustomResourceDefinition is not deleted, since its objects would go with it: put the old value back, or delete it yourself")
	}
	return ps, nil
}

// hasMore reports whether a BatchRelease has what it may not have, though an apply would
// change nothing.
func (a *applier) hasMore(t *target) bool {
	if t.groupKind() != inventory.ReleaseKind || t.live == nil {
		return false
	}
	_, more, err := disinherited(t.live, t.Object, a.gs)
	return err != nil || len(more) > 0 // an apply says what is wrong
}

// forbidden says what may not be in a branch: what a controller of the cluster keeps of
// a Deployment, since a write to that goes round its gates; and owners, since the garbage
// collector deletes what has none of them any more, a namespace with all its Deployments.
func (t *target) forbidden() *plan.Problem {
	if len(t.GetOwnerReferences()) > 0 {
		return t.problem(plan.ReasonInvalidManifest, "metadata.ownerReferences: where the owners are gone, the garbage collector deletes the object and what is in it", "remove them: the UID of an owner is of one cluster")
	}
	if t.adopter != "" && t.controller() == nil {
		return t.problem(plan.ReasonInvalidManifest, "metadata.labels: the selector of Deployment "+t.adopter+" matches them, so that it would adopt the ReplicaSet, and its release would be resized past the gates", "give it other labels")
	}
	switch t.groupKind() {
	case inventory.RevisionKind:
		return t.problem(plan.ReasonInvalidManifest, "a ControllerRevision is the record of a controller", "remove it from the branch")
	case inventory.ReplicaSetKind, inventory.PodKind:
		if owner := t.controller(); owner != nil {
			return t.problem(plan.ReasonInvalidManifest, "it is controlled by "+owner.Kind+" "+owner.Name, "remove it from the branch, and change that instead")
		}
	}
	return nil
}

// controller is the owner that controls the live object; nil without one.
func (t *target) controller() *metav1.OwnerReference {
	if t.live == nil {
		return nil
	}
	return metav1.GetControllerOf(t.live)
}

// hintAtPlan replaces the hint at force, which is not for a Deployment with a
// plan, since all its pods would go at once, and not for a plan: the native controller
// would bring all pods up before the next plan is there; nor for what holds other objects.
func hintAtPlan(ps plan.Problems, hint string) {
	for _, p := range ps {
		if apiproblem.IsImmutableMessage(p.Err.Error()) {
			p.Hint = hint
		}
	}
}

// trialName is appended to the name of an object whose re-creation is tried.
const trialName = "-trial"

// dryRunAnew tries to create an object that is there, under another name: who
// is deleted and cannot be made anew is lost. What an object may not share with
// the one that is to go is no reason against it.
func (a *applier) dryRunAnew(ctx context.Context, t *target) error {
	u := a.manifest(t.Object)
	u.SetName(u.GetName()[:min(len(u.GetName()), validation.DNS1123LabelMaxLength-len(trialName))] + trialName)
	err := a.c.Create(ctx, u, client.DryRunAll, client.FieldOwner(v1alpha1.ManagerGitSync))
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

// hasMoved reports whether the spec of an object is another one than was read.
func (a *applier) hasMoved(ctx context.Context, t *target) bool {
	now := &unstructured.Unstructured{}
	now.SetGroupVersionKind(t.live.GroupVersionKind())
	err := a.c.Get(ctx, client.ObjectKeyFromObject(t.live), now)
	return err == nil && now.GetGeneration() != t.live.GetGeneration()
}

// isHeldSince reports whether rollout has taken the hold of a Deployment since it was
// read. A policy then refuses what is not written to a held one, and names another cause.
func (a *applier) isHeldSince(ctx context.Context, t *target) bool {
	if t.groupKind() != inventory.DeploymentKind || t.live == nil || t.live.GetLabels()[v1alpha1.LabelHeld] != "" {
		return false
	}
	now, err := inventory.Get(ctx, a.c, t.entry())
	return err == nil && now != nil && now.GetLabels()[v1alpha1.LabelHeld] != ""
}

// heldSince is the conflict that has the Deployment read again.
func (t *target) heldSince() error {
	return apierrors.NewConflict(schema.GroupResource{Group: "apps", Resource: "deployments"}, t.GetName(), errors.New("it is held since it was read"))
}

func (a *applier) dryRunApply(ctx context.Context, u *unstructured.Unstructured) error {
	return a.c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(v1alpha1.ManagerGitSync), client.ForceOwnership, client.DryRunAll)
}

// mayWrite returns an error where the account could not write an object that is left
// alone: such an object is recorded as the source's, and others are refused it.
func (a *applier) mayWrite(ctx context.Context, t *target) error {
	u := a.manifest(t.Object)
	if t.live == nil {
		return a.dryRunApply(ctx, u)
	}
	return a.c.Patch(ctx, u, client.RawPatch(types.MergePatchType, []byte("{}")), client.FieldOwner(v1alpha1.ManagerGitSync), client.DryRunAll)
}

// dryRunRollout tries the write that rollout will make one day: the template,
// and the strategy, put in place of those that are there. An apply of the full
// manifest would be another thing, for lists are merged by it: a container
// that Git renamed would be tried together with the one that it was.
//
// The Deployment may be held: it stays so in the trial, since a policy refuses
// a held Deployment that is Recreate and not paused.
func (a *applier) dryRunRollout(ctx context.Context, t *target) error {
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
	return a.c.Patch(ctx, t.live.DeepCopy(), client.RawPatch(types.JSONPatchType, raw),
		client.FieldOwner(v1alpha1.ManagerRollout), client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
}

// dryRunRest tries the rest of the manifest, with the template, strategy and
// hold that the Deployment has.
func (a *applier) dryRunRest(ctx context.Context, t *target) error {
	u, err := a.rest(t)
	if err != nil {
		return err
	}
	return a.dryRunApply(ctx, u)
}

// rest is the manifest with what the Deployment has of rollout's fields.
func (a *applier) rest(t *target) (*unstructured.Unstructured, error) {
	u := a.manifest(t.Object)
	if err := takeOver(u, t.live, fieldmanager.RolloutFields...); err != nil {
		return nil, err
	}
	fieldmanager.WithoutNulls(u.Object)
	return u, nil
}

// takeOver puts fields of the live spec in place of those of a manifest.
func takeOver(u, live *unstructured.Unstructured, fields ...string) error {
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

// apply writes an object.
func (a *applier) apply(ctx context.Context, t *target) (change, error) {
	switch t.way {
	case notAtAll, afterHandBack, onceGone:
		return unchanged, nil
	case plainly, asGoverned:
	}
	if t.asIs {
		return unchanged, nil
	}
	version := ""
	switch isPlan := t.groupKind() == inventory.ReleaseKind; {
	case isPlan && t.live == nil:
		return a.create(ctx, t)
	case isPlan && isForeign(t.live):
		version = t.live.GetResourceVersion() // it is as it was when it was read
	case isPlan:
		if err := a.ownCreated(ctx, t.live); err != nil {
			return unchanged, err
		}
	}
	if t.live == nil && t.release != nil {
		// The first install is whole and without a hold (H21); the fields that
		// are rollout's change hands right after it.
		live, err := a.install(ctx, t)
		if err != nil {
			return unchanged, err
		}
		t.live, t.way = live, asGoverned
		_, err = a.applyOwn(ctx, t, version)
		return created, err
	}
	if t.live != nil && t.groupKind() == inventory.DeploymentKind && t.way == plainly && fieldmanager.HasRolloutFields(t.live) {
		live := t.live.DeepCopy()
		if err := fieldmanager.TakeBack(ctx, a.c, live); err != nil {
			return unchanged, err
		}
		t.live, t.handedOver, version = live, true, live.GetResourceVersion()
	}
	return a.applyOwn(ctx, t, version)
}

// install applies a governed Deployment for the first time.
func (a *applier) install(ctx context.Context, t *target) (*unstructured.Unstructured, error) {
	u := a.body(t)
	if err := a.write(ctx, u); err != nil {
		return nil, err
	}
	return u, nil
}

// applyOwn applies what is gitsync's of an object.
func (a *applier) applyOwn(ctx context.Context, t *target, version string) (change, error) {
	if err := a.handOver(ctx, t); err != nil {
		return unchanged, err
	}
	u := a.body(t)
	u.SetResourceVersion(version)
	err := a.write(ctx, u)
	if apierrors.IsInvalid(err) && t.way == asGoverned && t.live != nil {
		u, err = a.applyAgain(ctx, t, err)
	}
	if apiproblem.IsImmutable(err) && mayRecreate(t) {
		return a.recreate(ctx, t)
	}
	if err != nil {
		return unchanged, err
	}
	t.applied = u
	switch {
	case t.live == nil || t.live.GetUID() != u.GetUID(): // it may be deleted after it was read
		return created, nil
	case u.GetResourceVersion() == t.live.GetResourceVersion():
		return unchanged, nil
	default:
		return configured, nil
	}
}

// applyAgain applies a governed Deployment that was refused, where its fields have
// another owner since they were read: rollout hands a Deployment back whose plan was
// deleted, and gives gitsync its template. An apply without it would remove it.
// Otherwise applyAgain returns the refusal.
func (a *applier) applyAgain(ctx context.Context, t *target, refusal error) (*unstructured.Unstructured, error) {
	live, err := inventory.Get(ctx, a.c, t.entry())
	if err != nil || live == nil {
		return nil, cmp.Or(err, refusal)
	}
	if owned, err := fieldmanager.AppliedSpec(live, fieldmanager.RolloutFields...); err != nil || len(owned) == 0 {
		return nil, cmp.Or(err, refusal)
	}
	t.live = live
	if err := a.handOver(ctx, t); err != nil {
		return nil, err
	}
	u := a.body(t)
	return u, a.write(ctx, u)
}

// handOver lets go of the fields that are others' and that gitsync has applied
// before.
func (a *applier) handOver(ctx context.Context, t *target) error {
	if t.live == nil {
		return nil
	}
	hand := func(manager string, names ...string) error {
		owned, err := fieldmanager.AppliedSpec(t.live, names...)
		if err != nil || len(owned) == 0 {
			return err
		}
		live, err := fieldmanager.HandOver(ctx, a.c, t.entry(), manager, names)
		if err == nil {
			t.live, t.handedOver = live, true
		}
		return err
	}
	if t.way == asGoverned {
		if err := hand(v1alpha1.ManagerRollout, fieldmanager.RolloutFields...); err != nil {
			return err
		}
	}
	if t.keepsReplicas() {
		return hand(fieldmanager.ManagerReplicas, "replicas")
	}
	return nil
}

// write applies; an apply that changes nothing changes no resourceVersion.
func (a *applier) write(ctx context.Context, u *unstructured.Unstructured) error {
	return a.c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(v1alpha1.ManagerGitSync), client.ForceOwnership)
}

// mayRecreate asks the manifest, not the cluster: it takes a commit to allow it. What
// holds other objects is never deleted so: they would go with it.
func mayRecreate(t *target) bool {
	switch t.groupKind() {
	case inventory.ReleaseKind, inventory.NamespaceKind, inventory.CRDKind:
		return false
	}
	return t.live != nil && t.release == nil && t.GetAnnotations()[v1alpha1.AnnotationForce] == annotationForceTrue
}

// goneWithin is how long an object may take to go before it is created anew.
const goneWithin = 30 * time.Second

func (a *applier) recreate(ctx context.Context, t *target) (change, error) {
	remove := inventory.Delete
	if gk := t.groupKind(); gk == inventory.ReplicaSetKind || gk == inventory.PodKind {
		remove = inventory.DeleteUnchanged // a Deployment may have adopted it since it was read
	}
	if err := client.IgnoreNotFound(remove(ctx, a.c, t.live)); err != nil {
		return unchanged, err
	}
	var finalizers []string
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, goneWithin, true, func(ctx context.Context) (bool, error) {
		live, err := inventory.Get(ctx, a.c, t.entry())
		if live != nil {
			finalizers = live.GetFinalizers()
		}
		return live == nil, err
	})
	if err != nil && len(finalizers) > 0 {
		return unchanged, t.problem(v1alpha1.ReasonApplyFailed, "it is deleted, to be created again, and does not go: it has the finalizers "+plan.JoinNames(finalizers), "see to who has set them")
	}
	if err != nil {
		return unchanged, fmt.Errorf("waiting for %s to be gone: %w", t, err)
	}
	u := a.manifest(t.Object)
	if err := a.write(ctx, u); err != nil {
		return recreated, err
	}
	t.applied = u
	return recreated, nil
}

// establishedWithin is how long the API server may take to serve a new kind.
const establishedWithin = 30 * time.Second

// awaitCRD waits until the API server serves what a CRD defines.
func (a *applier) awaitCRD(ctx context.Context, t *target) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, establishedWithin, true, func(ctx context.Context) (bool, error) {
		live, err := inventory.Get(ctx, a.c, t.entry())
		if err != nil || live == nil {
			return false, err
		}
		if status, because := conditionOf(live, "NamesAccepted"); status == "False" {
			return false, t.problem(v1alpha1.ReasonApplyFailed, "the API server does not accept its names: "+because, "take other names, or remove the CustomResourceDefinition that has them")
		}
		return isEstablished(live), nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s to be established: %w", t, err)
	}
	return nil
}

func isEstablished(crd *unstructured.Unstructured) bool {
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

// problem is about the object as a whole.
func (t *target) problem(reason, fact, hint string) *plan.Problem {
	return &plan.Problem{Reason: reason, Where: apiproblem.Where(t.Object), Err: errors.New(fact), Hint: hint, Retry: true}
}

// releaseObject is a BatchRelease as it is applied.
func releaseObject(br *v1alpha1.BatchRelease, file string) (plan.Object, error) {
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
