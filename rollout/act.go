package rollout

import (
	"cmp"
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
	"github.com/tranche-dev/tranche/plan/records"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/failures"
	"github.com/tranche-dev/tranche/rollout/jsonpatch"
)

// actor makes the writes of one round. All of them are conditional on the
// resourceVersion that was observed.
type actor struct {
	client.Client
	reader client.Reader   // past the cache
	as     context.Context //nolint:containedctx // in it, the client writes as the release's account
	br     *v1alpha1.BatchRelease
	d      *appsv1.Deployment
	// minor is the cluster's version, which says how revisions are named.
	minor int
	// selector is that of the controller.
	selector labels.Selector
	// written is the Deployment as the API server returned it for the last write.
	written *appsv1.Deployment
}

var fieldOwner = client.FieldOwner(v1alpha1.ManagerRollout)

// act makes one write, and reports whether there was something to write.
func (a *actor) act(ctx context.Context, action engine.Action) (bool, error) {
	switch action := action.(type) {
	case engine.Remember:
		return a.remember(ctx, action)
	case engine.Forget:
		return true, client.IgnoreNotFound(
			a.Delete(ctx, &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: a.d.Namespace, Name: action.Record.Name}},
				client.Preconditions{ResourceVersion: &action.Record.ResourceVersion}))
	case engine.Hold:
		return true, a.hold(action)
	case engine.HandBack:
		return true, a.handBack(action)
	case engine.Unlabel:
		p := jsonpatch.Patch{}
		p.At(a.d)
		label(&p, a.d, false)
		return true, a.writeDeployment(p)
	case engine.CreateReplicaSet:
		return true, a.create(ctx, action.ReplicaSet)
	case engine.CountCollision:
		return true, a.countCollision(ctx, action.Name)
	case engine.Resize:
		if a.br != nil && a.br.Status.Reason == v1alpha1.ReasonWriteRefused {
			return true, a.resizeWarily(action)
		}
		return true, a.resize(action)
	case engine.UnlabelReplicaSet:
		return true, unlabel(a.as, a, action.ReplicaSet)
	case engine.ClearRollback:
		p := jsonpatch.Patch{}
		p.At(a.br)
		p.Remove("/metadata/annotations/" + jsonpatch.Pointer(v1alpha1.AnnotationRollback))
		return true, a.patch(ctx, a.br.DeepCopy(), p)
	default:
		return false, fmt.Errorf("%T is not an action that this version knows", action)
	}
}

func (a *actor) remember(ctx context.Context, action engine.Remember) (bool, error) {
	r := action.Record
	if action.Written {
		there := r.Name != "" || r.Order > 0
		if a.written == nil || there && plan.EqualTemplate(r.Template, &a.written.Spec.Template) {
			return false, nil
		}
		r.Template = &a.written.Spec.Template
		switch {
		case r.Order > 0:
			r.Revision = "" // admission has made another revision of it at the hand-back
		case action.Renames:
			r.Revision = plan.TemplateHash(r.Template, a.d.Status.CollisionCount, a.minor)
		}
	}
	record, err := newRecord(a.d, a.br, r)
	if err != nil {
		return false, err
	}
	records.Mark(record, a.selector, a.br.Labels)
	if !action.Exists {
		err := a.Create(ctx, record, fieldOwner)
		if apierrors.IsAlreadyExists(err) {
			return true, a.takeRecord(ctx, record)
		}
		return true, err
	}
	record.Name, record.ResourceVersion = r.Name, r.ResourceVersion
	p := jsonpatch.Patch{}
	p.At(record)
	p.Add("/revision", r.Order)
	p.Add("/metadata/annotations", record.Annotations)
	return true, a.patch(ctx, record, p)
}

// takeRecord gives a record that is there already the order, the labels and the owners of one
// that was to be made. A Deployment that is gone, or a round that was cut off, has left it. Or a
// user has removed its label, so that the cache does not have it.
func (a *actor) takeRecord(ctx context.Context, record *appsv1.ControllerRevision) error {
	var there appsv1.ControllerRevision
	if err := a.reader.Get(ctx, client.ObjectKeyFromObject(record), &there); err != nil {
		return fmt.Errorf("getting the ControllerRevision that is there already: %w", err)
	}
	kept, err := plan.ReadRecord(&there)
	same, order := err == nil && isTemplateOf(record, kept), max(there.Revision, record.Revision)
	marked := labels.Merge(there.Labels, record.Labels)
	if !records.Selector.Matches(labels.Set(there.Labels)) {
		if !same || !records.Selector.Matches(marked) {
			return fmt.Errorf("ControllerRevision %s is there already, and not ours; delete or rename it", record.Name)
		}
		order = record.Revision
	}
	if !same {
		old := client.Preconditions{UID: &there.UID, ResourceVersion: &there.ResourceVersion}
		if err := a.Delete(ctx, &there, old); err != nil {
			return fmt.Errorf("deleting a record of the same name: %w", err)
		}
		return fmt.Errorf("ControllerRevision %s had another template: %w", record.Name, failures.ErrChanged)
	}
	p := jsonpatch.Patch{}
	p.At(&there)
	p.Add("/revision", order)
	p.Add("/metadata/labels", marked)
	p.Add("/metadata/annotations", record.Annotations)
	p.Add("/metadata/ownerReferences", record.OwnerReferences)
	return a.patch(ctx, &there, p)
}

// isTemplateOf reports whether an object to be made keeps the template of a record.
func isTemplateOf(record *appsv1.ControllerRevision, kept plan.Record) bool {
	made, err := plan.ReadRecord(record)
	return err == nil && plan.EqualTemplate(made.Template, kept.Template)
}

// hold keeps the native controller off and sets the template, in one write
// (H20): a template must never be there before its hold.
func (a *actor) hold(action engine.Hold) error {
	p := jsonpatch.Patch{}
	p.At(a.d)
	label(&p, a.d, true)
	p.Add("/spec/paused", true)
	p.Add("/spec/strategy", appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType})
	p.Add("/spec/template", action.Template)
	return a.writeDeployment(p)
}

// patch writes a patch. One that does not fit the object any more is no refusal.
func (a *actor) patch(ctx context.Context, o client.Object, p jsonpatch.Patch, options ...client.PatchOption) error {
	err := a.Patch(ctx, o, p.Raw(), append(options, fieldOwner)...)
	if jsonpatch.IsInapplicable(err) {
		return fmt.Errorf("the patch does not fit %s/%s any more: %w", o.GetNamespace(), o.GetName(), failures.ErrChanged)
	}
	return err
}

// label gives an object the label of a hold, or takes it off.
func label(p *jsonpatch.Patch, o client.Object, held bool) {
	path := "/metadata/labels/" + jsonpatch.Pointer(v1alpha1.LabelHeld)
	switch has := v1alpha1.HasHeld(o.GetLabels()); {
	case held && !has:
		if o.GetLabels() == nil {
			p.Add("/metadata/labels", map[string]string{})
		}
		p.Add(path, "true")
	case has && !held:
		p.Remove(path)
	}
}

// unlabel takes the label of a hold off a ReplicaSet, whose status may be written meanwhile.
// It is guarded without it, too: see config/policy/held_replicasets.yaml.
func unlabel(ctx context.Context, c client.Client, rs *appsv1.ReplicaSet) error {
	p := jsonpatch.Patch{}
	p.Test("/metadata/uid", rs.UID)
	label(&p, rs, false)
	err := c.Patch(ctx, rs.DeepCopy(), p.Raw(), fieldOwner)
	if jsonpatch.IsInapplicable(err) {
		return fmt.Errorf("ReplicaSet %s/%s has lost the label already: %w", rs.Namespace, rs.Name, failures.ErrChanged)
	}
	return client.IgnoreNotFound(err)
}

// writeDeployment patches the Deployment and keeps what the API server returns.
func (a *actor) writeDeployment(p jsonpatch.Patch, options ...client.PatchOption) error {
	d := a.d.DeepCopy()
	if err := a.patch(a.as, d, p, options...); err != nil {
		return err
	}
	a.written = d
	return nil
}

// handBack ends the hold in one write: in two, the native controller adds
// pods (H7) or takes all old ones away (H8) between them. A rollback that the native
// controller was asked for meanwhile, by its annotation, does not follow: it would replace
// all pods past the gates.
func (a *actor) handBack(action engine.HandBack, options ...client.PatchOption) error {
	p := jsonpatch.Patch{}
	p.At(a.d)
	label(&p, a.d, false)
	if a.d.Spec.Paused {
		p.Remove("/spec/paused")
	}
	if _, ok := a.d.Annotations[appsv1.DeprecatedRollbackTo]; ok {
		p.Remove("/metadata/annotations/" + jsonpatch.Pointer(appsv1.DeprecatedRollbackTo))
	}
	p.Add("/spec/strategy", action.Strategy)
	if action.Template != nil {
		p.Add("/spec/template", action.Template)
	}
	return a.writeDeployment(p, options...)
}

// create makes the ReplicaSet of the Deployment's template without pods. It gives it its
// size once the API server has returned the pod template that was sent. Admission may
// change it in this very write. In this order a controller that ends here leaves no pod of
// a template that Git never had. The next one finds the ReplicaSet at 0. Any other
// ReplicaSet has its size from the beginning: the native controller may delete an old one
// without pods at any moment (H12).
//
// A ReplicaSet of that name which is ours, or which the native controller is about to
// adopt, is observed in the next round. Any other is a hash collision: as the native
// controller does, create raises the count, and the next round computes another name.
func (a *actor) create(ctx context.Context, rs *appsv1.ReplicaSet) error {
	first := rs.DeepCopy()
	first.Spec.Replicas = ptr.To(ptr.Deref(rs.Spec.Replicas, 1))
	if plan.EqualTemplate(&a.d.Spec.Template, &rs.Spec.Template) {
		first.Spec.Replicas = ptr.To(int32(0))
	}
	made, err := a.createOwned(first)
	if err == nil {
		changed, size := sameTemplate(rs, made, false), ptr.Deref(rs.Spec.Replicas, 1)
		if changed == nil && size != *first.Spec.Replicas {
			return a.size(made, size)
		}
		if changed != nil && *first.Spec.Replicas > 0 {
			if err := a.size(made, 0); err != nil {
				return fmt.Errorf("%w (%w)", err, changed)
			}
		}
		return cmp.Or(changed, sameSize(rs.Name, size, made, false))
	}
	if failures.Refused(err) {
		return &failures.CreationRefused{Err: err}
	}
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	taken, err := a.isTaken(ctx, rs)
	if err != nil {
		return err
	}
	if !taken {
		return fmt.Errorf("creating ReplicaSet %s, which is there already: %w", rs.Name, failures.ErrChanged)
	}
	var changed *replicaSetChanged
	if err := a.try(rs); errors.As(err, &changed) { // another name would be changed alike
		return err
	}
	return a.countCollision(ctx, rs.Name)
}

// isTaken reports whether another ReplicaSet has the name of one that is to be made. That
// is one of another template, one that the native controller will not adopt, or one that
// is being deleted.
func (a *actor) isTaken(ctx context.Context, rs *appsv1.ReplicaSet) (bool, error) {
	var there appsv1.ReplicaSet
	if err := a.Get(ctx, client.ObjectKeyFromObject(rs), &there); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("getting ReplicaSet %s: %w", rs.Name, err)
	}
	owner := metav1.GetControllerOf(&there)
	selector, err := metav1.LabelSelectorAsSelector(a.d.Spec.Selector)
	if err != nil {
		return false, fmt.Errorf("reading spec.selector of Deployment %s: %w", a.d.Name, err)
	}
	ours := owner != nil && owner.UID == a.d.UID || owner == nil && selector.Matches(labels.Set(there.Labels))
	return !ours || there.DeletionTimestamp != nil || !plan.EqualTemplate(&there.Spec.Template, &rs.Spec.Template), nil
}

// countCollision raises the count that the hashes of new names contain. The next round
// computes another name.
func (a *actor) countCollision(ctx context.Context, name string) error {
	p := jsonpatch.Patch{}
	p.At(a.d)
	p.Add("/status/collisionCount", ptr.Deref(a.d.Status.CollisionCount, 0)+1)
	// By the controller's own account: the ClusterRole edit, which a tenant may
	// have, has no right to the status.
	if err := a.Status().Patch(ctx, a.d.DeepCopy(), p.Raw(), fieldOwner); err != nil {
		return fmt.Errorf("counting a hash collision: %w", err)
	}
	return fmt.Errorf("creating ReplicaSet %s, whose name another one has: %w", name, failures.ErrChanged)
}

// createOwned creates a ReplicaSet as the native controller does, with
// blockOwnerDeletion. The admission plugin OwnerReferencesPermissionEnforcement
// refuses that to an account without the right to update deployments/finalizers,
// which the ClusterRole edit is without. createOwned then creates it without
// blockOwnerDeletion: only a foreground deletion of the Deployment tells the two
// apart, since it does not wait for the ReplicaSet.
func (a *actor) createOwned(rs *appsv1.ReplicaSet, options ...client.CreateOption) (*appsv1.ReplicaSet, error) {
	options = append(options, fieldOwner)
	made := rs.DeepCopy()
	err := a.Create(a.as, made, options...)
	if !apierrors.IsForbidden(err) {
		return made, err
	}
	free := rs.DeepCopy()
	blocks := false
	for i := range free.OwnerReferences {
		owner := &free.OwnerReferences[i]
		blocks = blocks || ptr.Deref(owner.BlockOwnerDeletion, false)
		owner.BlockOwnerDeletion = nil
	}
	if !blocks {
		return nil, err
	}
	return free, a.Create(a.as, free, options...)
}

// size gives a ReplicaSet that was just made its size, or takes its pods away.
func (a *actor) size(made *appsv1.ReplicaSet, size int32) error {
	p := jsonpatch.Patch{}
	p.Test("/metadata/uid", made.UID) // its status may be written meanwhile
	p.Add("/spec/replicas", size)
	answer := made.DeepCopy()
	if err := a.patch(a.as, answer, p); err != nil {
		return fmt.Errorf("giving ReplicaSet %s, which was just made, the size %d: %w", made.Name, size, err)
	}
	return cmp.Or(sameTemplate(made, answer, true), sameSize(made.Name, size, answer, true))
}

// resizeWarily tries a resize in a dry run first. Admission has changed or refused the
// last write, and a write that it changes may take more pods away.
func (a *actor) resizeWarily(action engine.Resize) error {
	if err := a.resize(action, client.DryRunAll); err != nil && !failures.NoDryRun(err) {
		return err
	}
	return a.resize(action)
}

func (a *actor) resize(action engine.Resize, options ...client.PatchOption) error {
	rs := action.ReplicaSet
	p := jsonpatch.Patch{}
	p.At(rs)
	if rs.Annotations == nil {
		p.Add("/metadata/annotations", map[string]string{})
	}
	p.Add("/metadata/annotations/"+jsonpatch.Pointer(engine.AnnotationDesiredReplicas), fmt.Sprint(action.Desired))
	p.Add("/metadata/annotations/"+jsonpatch.Pointer(engine.AnnotationMaxReplicas), fmt.Sprint(action.Max))
	p.Add("/spec/replicas", action.To)
	label(&p, rs, action.Held)
	answer := rs.DeepCopy()
	if err := a.patch(a.as, answer, p, options...); err != nil {
		return failures.OfSize(rs, action.To, err)
	}
	return cmp.Or(sameTemplate(rs, answer, true), sameSize(rs.Name, action.To, answer, true))
}
