package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/records"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/failures"
	"github.com/tranche-dev/tranche/rollout/jsonpatch"
	"github.com/tranche-dev/tranche/rollout/managedfields"
	"github.com/tranche-dev/tranche/rollout/trials"
)

// replicaSetChanged says that admission has changed the pod template or the size of a
// ReplicaSet in a write. The native controller compares templates: it would take the
// ReplicaSet for another revision, and the controller would make it again without end.
// By another size than was sent, pods go that are to stay, or come past a gate.
type replicaSetChanged struct {
	replicaSet string
	// fields of the pod template; none where only the size is another.
	fields []string
	// sent and stored are the two sizes.
	sent, stored int32
	// resized: it was there, and had the template before.
	resized bool
}

func (e *replicaSetChanged) Error() string {
	when := "created"
	if e.resized {
		when = "resized"
	}
	if len(e.fields) == 0 {
		return fmt.Sprintf("an admission policy or webhook changes spec.replicas of ReplicaSet %s when it is %s: %d was sent, and %d came back. "+
			"No more sizes are written while it does. Exempt ReplicaSets from it", e.replicaSet, when, e.sent, e.stored)
	}
	return fmt.Sprintf("an admission policy or webhook changes %s of ReplicaSet %s when it is %s. "+
		"It would no longer have the Deployment's pod template, and the native controller would make ReplicaSets without end. "+
		"Exempt ReplicaSets from it, or let it make the same change to Deployments", strings.Join(e.fields, ", "), e.replicaSet, when)
}

// resizesPass reports whether what was refused is the creation of a ReplicaSet alone.
func resizesPass(err error) bool {
	var changed *replicaSetChanged
	var creation *failures.CreationRefused
	return errors.As(err, &creation) || errors.As(err, &changed) && !changed.resized
}

// sameTemplate returns a [replicaSetChanged] where the API server returned another pod
// template for a write of a ReplicaSet than was sent, or was there.
func sameTemplate(want, got *appsv1.ReplicaSet, resized bool) error {
	if plan.EqualTemplate(&want.Spec.Template, &got.Spec.Template) {
		return nil
	}
	before, after := withoutHash(&want.Spec.Template), withoutHash(&got.Spec.Template)
	return &replicaSetChanged{replicaSet: want.Name, fields: managedfields.Different(before, after), resized: resized}
}

// sameSize returns a [replicaSetChanged] where the API server returned another size for a
// write of a ReplicaSet than was sent.
func sameSize(name string, sent int32, got *appsv1.ReplicaSet, resized bool) error {
	stored := ptr.Deref(got.Spec.Replicas, 1)
	if sent == stored {
		return nil
	}
	return &replicaSetChanged{replicaSet: name, sent: sent, stored: stored, resized: resized}
}

// changesSize reports whether admission has changed the size of a ReplicaSet, and not its
// pod template.
func changesSize(err error) bool {
	var changed *replicaSetChanged
	return errors.As(err, &changed) && len(changed.fields) == 0
}

// withoutHash returns a pod template without the label by which the ReplicaSet's name
// comes into it.
func withoutHash(t *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	c := t.DeepCopy()
	delete(c.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return c
}

// tryHold has the API server try the writes that follow a hold, as dry runs: the record of the
// update revision, and those of ReplicaSets. It returns as refused what the API server would
// refuse or change, and any other problem as err.
//
// It asks nothing without a hold among the actions. If a hold is only put back, it asks
// nothing either: the native controller would not be kept off while it asked.
func (r *reconciler) tryHold(ctx context.Context, o engine.Observed, d engine.Decision) (why, err error) {
	hold, ok := holdOf(d.Actions)
	if !ok {
		return nil, nil
	}
	held := v1alpha1.HasHeld(o.Deployment.Labels)
	if held && (plan.EqualTemplate(hold.Template, &o.Deployment.Spec.Template) || !engine.Held(o.Deployment)) {
		return nil, nil
	}
	a := &actor{Client: r.Client, as: r.asAccount(ctx, o.Release), br: o.Release, d: o.Deployment, selector: r.selector}
	if why, err := a.tryRecord(ctx, d.Actions); why != nil || err != nil {
		return why, err
	}
	return a.tryReplicaSets(ctx, o)
}

// tryReplicaSets tries the writes of ReplicaSets that follow a hold, as the account that
// writes. They are the creation or a resize of the update revision's, and a resize of the
// stable one's. A resize is returned as refused rather than the creation. If another
// ReplicaSet has the name of the new one, it counts the collision.
func (a *actor) tryReplicaSets(ctx context.Context, o engine.Observed) (why, err error) {
	var creation error
	for _, rs := range engine.Moves(o) {
		err := a.try(rs)
		var changed *replicaSetChanged
		switch {
		case err == nil && rs.UID == "": // the release is named after the ReplicaSet that it will have
			if taken, err := a.isTaken(ctx, rs); err != nil || taken {
				return nil, cmp.Or(err, a.countCollision(ctx, rs.Name))
			}
		case err == nil:
		case failures.NoDryRun(err):
			logr.FromContextOrDiscard(ctx).V(1).Info("Skipped the trial of a ReplicaSet", "replicaSet", rs.Name, "because", err.Error())
		case errors.As(err, &changed), failures.Refused(err):
			why = fmt.Errorf("dry run of ReplicaSet %s/%s: %w", rs.Namespace, rs.Name, err)
			if rs.UID != "" {
				return why, nil
			}
			creation = &failures.CreationRefused{Err: why}
		default:
			return nil, fmt.Errorf("dry run of ReplicaSet %s/%s: %w", rs.Namespace, rs.Name, err)
		}
	}
	return creation, nil
}

// tryRecord makes the record that follows a hold as a dry run, if it is not there yet. A hold
// whose revision cannot be recorded would last, and no pod could follow.
func (a *actor) tryRecord(ctx context.Context, actions []engine.Action) (refused, err error) {
	i := slices.IndexFunc(actions, func(action engine.Action) bool {
		r, ok := action.(engine.Remember)
		return ok && r.Written && r.Record.Name == ""
	})
	if i < 0 {
		return nil, nil
	}
	record, err := newRecord(a.d, a.br, actions[i].(engine.Remember).Record) //nolint:forcetypeassert // it was just found
	if err != nil {
		return nil, err
	}
	records.Mark(record, a.selector, a.br.Labels)
	err = a.Create(ctx, record, fieldOwner, client.DryRunAll, client.DisableReadYourWritesConsistency)
	switch {
	case err == nil, apierrors.IsAlreadyExists(err), failures.NoDryRun(err):
		return nil, nil
	}
	err = fmt.Errorf("dry run of ControllerRevision %s/%s, which would record the release: %w", record.Namespace, record.Name, err)
	if failures.Refused(err) {
		return &failures.CreationRefused{Err: err}, nil
	}
	return nil, err
}

// growths remembers the releases whose update revision might not grow.
type growths struct {
	refused sync.Map // it was refused last
	// inVain are those for which others have made room.
	inVain *trials.Trials[*failures.GrowthRefused]
}

func (g *growths) forget(release types.NamespacedName) {
	g.refused.Delete(release)
	g.inVain.Forget(release)
}

// try tries the growth of the update revision's ReplicaSet in a dry run, if a write or
// that growth was refused before. Others would make room for it in vain. If they have done so
// although the dry run passed, the growth waits. A change by admission comes again with the write.
func (g *growths) try(a *actor, d engine.Decision, now time.Time) error {
	if d.Growth == nil {
		return nil
	}
	last, waits := g.inVain.Last(a.br, now)
	if waits && last.Covers(d.Growth.ReplicaSet, d.Growth.To) && !growsFirst(d) {
		return last
	}
	key := client.ObjectKeyFromObject(a.br)
	if _, refused := g.refused.Load(key); refused || a.br.Status.Reason == v1alpha1.ReasonWriteRefused {
		err := a.resize(*d.Growth, client.DryRunAll)
		var changed *replicaSetChanged
		if err != nil && !failures.NoDryRun(err) && !errors.As(err, &changed) {
			return fmt.Errorf("dry run: %s: %w", d.Growth, err)
		}
	}
	g.refused.Delete(key)
	return nil
}

// note notes a growth for which others may have made room in vain.
func (g *growths) note(br *v1alpha1.BatchRelease, refused *failures.GrowthRefused, now time.Time) {
	last, waits := g.inVain.Last(br, now)
	if !last.Alike(refused) {
		g.inVain.Forget(client.ObjectKeyFromObject(br))
		waits = false
	}
	if !waits {
		g.inVain.Note(br, refused, now)
	}
}

// passed forgets a refused growth, if this is its like and has passed.
func (g *growths) passed(br *v1alpha1.BatchRelease, size engine.Resize, now time.Time) {
	if last, _ := g.inVain.Last(br, now); last.Covers(size.ReplicaSet, size.To) {
		g.inVain.Forget(client.ObjectKeyFromObject(br))
	}
}

// growsFirst reports whether nothing makes room for the growth before it.
func growsFirst(d engine.Decision) bool {
	if len(d.Actions) == 0 {
		return false
	}
	resize, ok := d.Actions[0].(engine.Resize)
	return ok && resize.ReplicaSet.UID == d.Growth.ReplicaSet.UID && resize.To > ptr.Deref(resize.ReplicaSet.Spec.Replicas, 1)
}

func holdOf(actions []engine.Action) (engine.Hold, bool) {
	for _, a := range actions {
		if h, ok := a.(engine.Hold); ok {
			return h, true
		}
	}
	return engine.Hold{}, false
}

// try makes a write of a ReplicaSet as a dry run. It is a resize of one that is there,
// and the creation of any other, under a name that none has.
func (a *actor) try(rs *appsv1.ReplicaSet) error {
	size := ptr.Deref(rs.Spec.Replicas, 1)
	if rs.UID != "" {
		p := jsonpatch.Patch{}
		p.Add("/metadata/annotations", with(rs.Annotations, engine.AnnotationDesiredReplicas, fmt.Sprint(size+1)))
		p.Add("/spec/replicas", size)
		answer := rs.DeepCopy()
		if err := a.Patch(a.as, answer, p.Raw(), fieldOwner, client.DryRunAll); err != nil {
			return err
		}
		return cmp.Or(sameTemplate(rs, answer, true), sameSize(rs.Name, size, answer, true))
	}
	sent := rs.DeepCopy()
	sent.Name, sent.GenerateName = "", a.d.Name+"-"
	answer, err := a.createOwned(sent, client.DryRunAll, client.DisableReadYourWritesConsistency)
	if err != nil {
		return err
	}
	return cmp.Or(sameTemplate(rs, answer, false), sameSize(rs.Name, size, answer, false))
}

func with(annotations map[string]string, key, value string) map[string]string {
	c := map[string]string{key: value}
	maps.Copy(c, annotations)
	c[key] = value
	return c
}
