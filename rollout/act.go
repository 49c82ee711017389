package rollout

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// errLookAgain says that the world is not as it was observed, and that a
// later look will do.
var errLookAgain = errors.New("not as observed")

// actor makes the writes of one round. All of them are conditional on the
// resourceVersion that was observed.
type actor struct {
	own client.Client // the controller's own: bookkeeping
	as  client.Client // for the Deployment and its ReplicaSets
	br  *v1alpha1.BatchRelease
	d   *appsv1.Deployment
}

var fieldOwner = client.FieldOwner(v1alpha1.ManagerRollout)

func (a *actor) act(ctx context.Context, action engine.Action) error {
	switch action := action.(type) {
	case engine.Remember:
		return a.remember(ctx, action)
	case engine.Forget:
		return client.IgnoreNotFound(a.own.Delete(ctx, &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: a.d.Namespace, Name: action.Record.Name}},
			client.Preconditions{ResourceVersion: &action.Record.ResourceVersion}))
	case engine.Hold:
		return a.hold(ctx, action)
	case engine.HandBack:
		return a.handBack(ctx, action)
	case engine.CreateReplicaSet:
		return a.create(ctx, action.ReplicaSet)
	case engine.Resize:
		return a.resize(ctx, action)
	case engine.ClearRollback:
		p := jsonPatch{}
		p.at(a.br)
		p.remove("/metadata/annotations/" + pointer(v1alpha1.AnnotationRollback))
		return a.own.Patch(ctx, a.br.DeepCopy(), p.patch(), fieldOwner)
	default:
		return fmt.Errorf("%T is not an action that this version knows", action)
	}
}

func (a *actor) remember(ctx context.Context, action engine.Remember) error {
	record, err := newRecord(a.d, a.br, action.Record)
	if err != nil {
		return err
	}
	if !action.Exists {
		err := a.own.Create(ctx, record, fieldOwner)
		if apierrors.IsAlreadyExists(err) {
			return a.clearRecord(ctx, record)
		}
		return err
	}
	record.Name, record.ResourceVersion = action.Record.Name, action.Record.ResourceVersion
	p := jsonPatch{}
	p.at(record)
	p.add("/revision", action.Record.Order)
	p.add("/metadata/annotations", record.Annotations)
	return a.own.Patch(ctx, record, p.patch(), fieldOwner)
}

// clearRecord deletes a record of the same name that a Deployment of the same
// name has left, which may have been deleted without what it owned.
func (a *actor) clearRecord(ctx context.Context, record *appsv1.ControllerRevision) error {
	var there appsv1.ControllerRevision
	if err := a.own.Get(ctx, client.ObjectKeyFromObject(record), &there); err != nil {
		return fmt.Errorf("getting the ControllerRevision that is there already: %w", err)
	}
	if owner := metav1.GetControllerOf(&there); owner != nil && owner.UID == a.d.UID {
		return fmt.Errorf("ControllerRevision %s is there already: %w", record.Name, errLookAgain)
	}
	if there.Labels[plan.LabelManagedBy] != plan.ManagedBy {
		return fmt.Errorf("ControllerRevision %s is there already, and not ours; delete or rename it", record.Name)
	}
	old := client.Preconditions{UID: &there.UID, ResourceVersion: &there.ResourceVersion}
	if err := a.own.Delete(ctx, &there, old); err != nil {
		return fmt.Errorf("deleting the record of a former Deployment: %w", err)
	}
	return fmt.Errorf("ControllerRevision %s was of a former Deployment: %w", record.Name, errLookAgain)
}

// hold keeps the native controller off and sets the template, in one write
// (H20): a template must never be there before its hold.
func (a *actor) hold(ctx context.Context, action engine.Hold) error {
	p := jsonPatch{}
	p.at(a.d)
	if a.d.Labels == nil {
		p.add("/metadata/labels", map[string]string{})
	}
	p.add("/metadata/labels/"+pointer(v1alpha1.LabelHeld), "true")
	p.add("/spec/paused", true)
	p.add("/spec/strategy", appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType})
	p.add("/spec/template", action.Template)
	return a.as.Patch(ctx, a.d.DeepCopy(), p.patch(), fieldOwner)
}

// handBack ends the hold in one write: in two, the native controller adds
// pods (H7) or takes all old ones away (H8) between them.
func (a *actor) handBack(ctx context.Context, action engine.HandBack) error {
	p := jsonPatch{}
	p.at(a.d)
	if _, ok := a.d.Labels[v1alpha1.LabelHeld]; ok {
		p.remove("/metadata/labels/" + pointer(v1alpha1.LabelHeld))
	}
	if a.d.Spec.Paused {
		p.remove("/spec/paused")
	}
	p.add("/spec/strategy", action.Strategy)
	if action.Template != nil {
		p.add("/spec/template", action.Template)
	}
	return a.as.Patch(ctx, a.d.DeepCopy(), p.patch(), fieldOwner)
}

// create makes a ReplicaSet. A ReplicaSet of that name which is ours, or which the
// native controller is about to adopt, is observed in the next round. Any other is
// a hash collision: as the native controller does, create raises the count, and the
// next round computes another name.
func (a *actor) create(ctx context.Context, rs *appsv1.ReplicaSet) error {
	err := a.createOwned(ctx, rs)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	var there appsv1.ReplicaSet
	if err := a.as.Get(ctx, client.ObjectKeyFromObject(rs), &there); err != nil {
		return fmt.Errorf("getting the ReplicaSet that is there already: %w", err)
	}
	owner := metav1.GetControllerOf(&there)
	selector, err := metav1.LabelSelectorAsSelector(a.d.Spec.Selector)
	if err != nil {
		return fmt.Errorf("reading spec.selector of Deployment %s: %w", a.d.Name, err)
	}
	ours := owner != nil && owner.UID == a.d.UID || owner == nil && selector.Matches(labels.Set(there.Labels))
	if ours && plan.EqualTemplate(&there.Spec.Template, &rs.Spec.Template) {
		return fmt.Errorf("creating ReplicaSet %s, which is there already: %w", rs.Name, errLookAgain)
	}
	p := jsonPatch{}
	p.at(a.d)
	p.add("/status/collisionCount", ptr.Deref(a.d.Status.CollisionCount, 0)+1)
	// By the controller's own account: the ClusterRole edit, which a tenant may
	// have, has no right to the status.
	if err := a.own.Status().Patch(ctx, a.d.DeepCopy(), p.patch(), fieldOwner); err != nil {
		return fmt.Errorf("counting a hash collision: %w", err)
	}
	return fmt.Errorf("creating ReplicaSet %s, whose name another one has: %w", rs.Name, errLookAgain)
}

// createOwned creates a ReplicaSet as the native controller does, with
// blockOwnerDeletion. The admission plugin OwnerReferencesPermissionEnforcement
// refuses that to an account without the right to update deployments/finalizers,
// which the ClusterRole edit is without. createOwned then creates it without
// blockOwnerDeletion: only a foreground deletion of the Deployment tells the two
// apart, since it does not wait for the ReplicaSet.
func (a *actor) createOwned(ctx context.Context, rs *appsv1.ReplicaSet) error {
	err := a.as.Create(ctx, rs.DeepCopy(), fieldOwner)
	if !apierrors.IsForbidden(err) {
		return err
	}
	free := rs.DeepCopy()
	blocks := false
	for i := range free.OwnerReferences {
		owner := &free.OwnerReferences[i]
		blocks = blocks || ptr.Deref(owner.BlockOwnerDeletion, false)
		owner.BlockOwnerDeletion = nil
	}
	if !blocks {
		return err
	}
	return a.as.Create(ctx, free, fieldOwner)
}

func (a *actor) resize(ctx context.Context, action engine.Resize) error {
	rs := action.ReplicaSet
	p := jsonPatch{}
	p.at(rs)
	if rs.Annotations == nil {
		p.add("/metadata/annotations", map[string]string{})
	}
	p.add("/metadata/annotations/"+pointer(engine.AnnotationDesiredReplicas), fmt.Sprint(action.Desired))
	p.add("/metadata/annotations/"+pointer(engine.AnnotationMaxReplicas), fmt.Sprint(action.Max))
	p.add("/spec/replicas", action.To)
	return a.as.Patch(ctx, rs.DeepCopy(), p.patch(), fieldOwner)
}
