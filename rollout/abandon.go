package rollout

import (
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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/records"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/failures"
	"github.com/tranche-dev/tranche/rollout/impersonate"
	"github.com/tranche-dev/tranche/rollout/managedfields"
	"github.com/tranche-dev/tranche/rollout/startup"
	"github.com/tranche-dev/tranche/rollout/tell"
)

// eventInterval is the time between events of a failing hand-back. By default, the API server keeps an event for an hour.
const eventInterval = 30 * time.Minute

// handBacks remembers the Deployments without a plan that could not be handed back, and
// when the last event said so. There is no BatchRelease any more whose status could.
type handBacks struct {
	mu sync.Mutex
	of map[types.NamespacedName]sentEvent
}

type sentEvent struct {
	uid  types.UID
	at   time.Time
	what string
}

// isNews notes a failure, and reports whether an event is to tell of it. It is for the
// first one of its reason, and for one again before that event is gone.
func (h *handBacks) isNews(d *appsv1.Deployment, reason string, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := client.ObjectKeyFromObject(d)
	if last, ok := h.of[key]; ok && last.uid == d.UID && last.what == reason && now.Sub(last.at) < eventInterval {
		return false
	}
	h.of[key] = sentEvent{d.UID, now, reason}
	return true
}

func (h *handBacks) forget(deployment types.NamespacedName) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.of, deployment)
}

// tellNotHandedBack tells why a Deployment that no plan governs is not handed back. There is not an event for each try.
func (a *abandonment) tellNotHandedBack(d *appsv1.Deployment, action engine.Action, err error) {
	if apierrors.IsConflict(err) || errors.Is(err, failures.ErrChanged) {
		return
	}
	e := engine.Event{Warning: true, Reason: v1alpha1.ReasonRequestFailed, Message: err.Error() + "; it is tried again, less and less often"}
	if failures.Refused(err) {
		e.Reason = v1alpha1.ReasonWriteRefused
		if _, ok := action.(engine.HandBack); ok {
			e.Reason = v1alpha1.ReasonHandBackRefused
		}
	}
	if a.handBacks.isNews(d, e.Reason, a.now()) {
		a.Tell(d, e)
	}
}

// abandonment lets go of the Deployments that no plan governs any more.
type abandonment struct {
	client.Client
	*tell.Teller
	reader    client.Reader // past the cache
	plans     planIndex
	startup   *startup.Plans
	handBacks *handBacks
	now       func() time.Time
	selector  labels.Selector
}

// abandon hands back Deployments that no plan governs any more, and deletes their records. It
// returns when to do so again for those that wait for their sources.
func (a *abandonment) abandon(ctx context.Context, release types.NamespacedName) (wait time.Duration, err error) {
	if name, ok := strings.CutPrefix(release.Name, noOwner); ok {
		return 0, a.unlabelOrphan(ctx, types.NamespacedName{Namespace: release.Namespace, Name: name})
	}
	names, err := a.candidates(ctx, release)
	if err != nil {
		return 0, err
	}
	var failed []error // of one Deployment, which keeps no other one held
	for _, name := range slices.Sorted(maps.Keys(names)) {
		key := types.NamespacedName{Namespace: release.Namespace, Name: name}
		plans, err := a.plans.of(ctx, key.Namespace, name)
		if err != nil {
			return wait, err
		}
		if len(plans) > 0 {
			a.handBacks.forget(key)
			continue
		}
		waits, err := a.letGo(ctx, key, names[name])
		failed, wait = append(failed, err), max(wait, waits)
	}
	return wait, errors.Join(failed...)
}

// unlabelOrphan takes the label of a hold off a ReplicaSet whose Deployment has gone without it.
func (a *abandonment) unlabelOrphan(ctx context.Context, key types.NamespacedName) error {
	var rs appsv1.ReplicaSet
	err := a.Get(ctx, key, &rs)
	if err != nil || !v1alpha1.HasHeld(rs.Labels) || v1alpha1.HasHeld(rs.Spec.Template.Labels) || metav1.GetControllerOf(&rs) != nil {
		return client.IgnoreNotFound(err)
	}
	return unlabel(ctx, a, &rs)
}

// candidates are Deployments with the label of a hold, which are true, or with records of ours.
// Users may label many, so a request for one looks at that one. A request for a plan that is gone
// does not name its Deployment, and looks at the namespace.
func (a *abandonment) candidates(ctx context.Context, release types.NamespacedName) (map[string]bool, error) {
	in, names := client.InNamespace(release.Namespace), map[string]bool{}
	if name, ok := strings.CutPrefix(release.Name, noPlan); ok {
		var d appsv1.Deployment
		err := a.Get(ctx, types.NamespacedName{Namespace: release.Namespace, Name: name}, &d)
		return map[string]bool{name: v1alpha1.HasHeld(d.Labels)}, client.IgnoreNotFound(err)
	}
	var list appsv1.ControllerRevisionList
	if err := a.List(ctx, &list, in); err != nil {
		return nil, fmt.Errorf("listing the ControllerRevisions of %s: %w", release.Namespace, err)
	}
	for i := range list.Items {
		if name := records.DeploymentOf(&list.Items[i]); name != "" {
			names[name] = false
		}
	}
	var held appsv1.DeploymentList
	if err := a.List(ctx, &held, in, client.HasLabels{v1alpha1.LabelHeld}); err != nil {
		return nil, fmt.Errorf("listing the held Deployments of %s: %w", release.Namespace, err)
	}
	for i := range held.Items {
		names[held.Items[i].Name] = true
	}
	return names, nil
}

// letGo releases a Deployment that no plan governs, or returns how long that waits for its source.
func (a *abandonment) letGo(ctx context.Context, deployment types.NamespacedName, held bool) (time.Duration, error) {
	ctx = impersonate.ForDeployment(ctx, deployment)
	if held {
		if returning, err := a.returning(ctx, deployment); err != nil || returning {
			return 0, err
		}
	}
	if wait, err := a.awaitSource(ctx, deployment); err != nil || wait > 0 {
		return wait, err
	}
	var o engine.Observed
	if err := observeWorkload(ctx, a, deployment, "", &o); err != nil || o.Deployment == nil {
		return 0, err // the garbage collector takes its records
	}
	if isOthers, err := a.isOfAnother(ctx, &o); err != nil || isOthers {
		return 0, err
	}
	return 0, a.release(ctx, deployment, o)
}

// release lets go of a Deployment that no plan governs.
func (a *abandonment) release(ctx context.Context, key types.NamespacedName, o engine.Observed) error {
	w := &actor{Client: a.Client, as: ctx, d: o.Deployment}
	actions, released := engine.Abandon(o), false
	if engine.Mislabelled(&o) && len(actions) == 0 {
		a.tellMislabelled(o.Deployment)
		return nil
	}
	if len(actions) > 0 {
		if err := errors.Join(a.ungoverned(ctx, key), a.unmoved(ctx, o.Deployment)); err != nil {
			return err
		}
	}
	for _, action := range actions {
		if _, ok := action.(engine.Forget); ok && !released { // the records go last: by them, what was cut off goes on
			if err := managedfields.Release(ctx, a.reader, a.Client, key); err != nil {
				a.tellNotHandedBack(o.Deployment, action, err)
				return err
			}
			released = true
		}
		if _, err := w.act(ctx, action); err != nil && !changesSize(err) { // the hand-back ends the hold all the same
			err = fmt.Errorf("Deployment %s: %s: %w", key, action, err)
			a.tellNotHandedBack(o.Deployment, action, err)
			return err
		}
		warnOfChange(a.Teller, w, action, o.Deployment)
		logr.FromContextOrDiscard(ctx).Info("Action written", "deployment", key.Name, "action", action.String(), "because", action.Because())
		e, told := tell.Of(action)
		if told {
			a.Tell(o.Deployment, e)
		}
		if e.Reason == v1alpha1.ReasonHandedBack {
			a.tellKept(ctx, key, e)
		}
	}
	a.handBacks.forget(key)
	return nil
}

// isOfAnother reports whether another controller lets go of a Deployment: it worked for the plan that
// is gone. It may not run, and the Deployment then stays as it is.
func (a *abandonment) isOfAnother(ctx context.Context, o *engine.Observed) (bool, error) {
	stable := plan.StableRecord(o.Records)
	if stable == nil {
		return false, nil
	}
	var c appsv1.ControllerRevision
	if err := a.Get(ctx, types.NamespacedName{Namespace: o.Deployment.Namespace, Name: stable.Name}, &c); err != nil {
		return false, fmt.Errorf("getting ControllerRevision %s: %w", stable.Name, err)
	}
	return records.IsOfAnother(&c, a.selector), nil
}

// unmoved asks the API server whether a Deployment is as it was observed. One that the cache
// has without its hold would lose its records, and then be handed back without them.
func (a *abandonment) unmoved(ctx context.Context, d *appsv1.Deployment) error {
	var live metav1.PartialObjectMetadata
	live.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	err := client.IgnoreNotFound(a.reader.Get(ctx, client.ObjectKeyFromObject(d), &live))
	if err != nil {
		return fmt.Errorf("reading Deployment %s/%s before letting go of it: %w", d.Namespace, d.Name, err)
	}
	if live.UID != d.UID || live.ResourceVersion != d.ResourceVersion {
		return fmt.Errorf("Deployment %s/%s was changed or deleted since it was observed: %w", d.Namespace, d.Name, failures.ErrChanged)
	}
	return nil
}

// tellMislabelled tells of a Deployment that has the label of a hold, and that Tranche leaves
// as it is.
func (a *abandonment) tellMislabelled(d *appsv1.Deployment) {
	if a.handBacks.isNews(d, v1alpha1.ReasonNotHeld, a.now()) {
		a.Tell(d, engine.Event{Warning: true, Reason: v1alpha1.ReasonNotHeld, Message: "The Deployment has label " + v1alpha1.LabelHeld +
			", and is not held: no plan governs it, Tranche has no record of it, and it is not both paused and of strategy " +
			"Recreate. Nothing is changed. " +
			"To take the label off, label the namespace " + v1alpha1.LabelDrift +
			"=correct meanwhile, and write the Deployment so that it is then neither paused nor of strategy Recreate"})
	}
}

// recordHandBack writes the last status of a plan that is being deleted, and that finalizers
// keep, once its Deployment is handed back or gone. The status would have a closed gate until the
// finalizers go. It stays where the branch has the plan again or another plan governs.
func (a *abandonment) recordHandBack(ctx context.Context, br *v1alpha1.BatchRelease) error {
	if br.Status.Phase == "" || br.Status.Phase == v1alpha1.PhaseCompleted || returns(*br) {
		return nil
	}
	plans, err := a.plans.of(ctx, br.Namespace, br.Spec.WorkloadRef.Name)
	if err != nil || len(plans) > 0 {
		return err
	}
	var d appsv1.Deployment
	err = a.Get(ctx, types.NamespacedName{Namespace: br.Namespace, Name: br.Spec.WorkloadRef.Name}, &d)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("getting the Deployment of BatchRelease %s/%s: %w", br.Namespace, br.Name, err)
	}
	if v1alpha1.HasHeld(d.Labels) {
		return nil // another round hands it back
	}
	last := br.DeepCopy()
	last.Status = engine.HandedBack(br, err != nil, a.now())
	if err := a.Status().Update(ctx, last, client.FieldOwner(v1alpha1.ManagerRollout)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the last status of BatchRelease %s/%s: %w", br.Namespace, br.Name, err)
	}
	return nil
}

// tellKept tells plans of a Deployment that are being deleted, and that finalizers keep,
// that it was handed back.
func (a *abandonment) tellKept(ctx context.Context, key types.NamespacedName, e engine.Event) {
	var plans v1alpha1.BatchReleaseList
	if err := a.List(ctx, &plans, client.InNamespace(key.Namespace), client.MatchingFields{v1alpha1.FieldWorkload: key.Name}); err != nil {
		return // an event
	}
	for i := range plans.Items {
		kept := e
		kept.Message += "; it is being deleted, and the finalizers " + plan.JoinNames(plans.Items[i].Finalizers) + " keep only the object"
		a.Tell(&plans.Items[i], kept)
	}
}

// returning reports whether the branch has the plan of a Deployment again, and it cannot be
// created yet. A finalizer keeps the old one, which is being deleted.
func (a *abandonment) returning(ctx context.Context, deployment types.NamespacedName) (bool, error) {
	var plans v1alpha1.BatchReleaseList
	if err := a.List(ctx, &plans, client.InNamespace(deployment.Namespace),
		client.MatchingFields{v1alpha1.FieldWorkload: deployment.Name}); err != nil {
		return false, fmt.Errorf("listing the plans of Deployment %s: %w", deployment, err)
	}
	switch {
	case slices.ContainsFunc(plans.Items, returns):
		a.startup.AwaitReturn(deployment)
		return true, nil
	case len(plans.Items) > 0: // else it is created now
		a.startup.EndReturn(deployment)
	}
	return false, nil
}

// returns reports whether a plan is being deleted, and the branch has it again.
func returns(br v1alpha1.BatchRelease) bool {
	return isGone(&br) && br.Annotations[v1alpha1.AnnotationReturns] != ""
}

// awaitSource returns how long a Deployment without a plan waits for its source, before it is
// handed back or its records go. One that no GitSource applies waits for nothing, unless it is
// restored: its BatchRelease may come after it.
func (a *abandonment) awaitSource(ctx context.Context, deployment types.NamespacedName) (time.Duration, error) {
	wait := a.startup.Wait(deployment)
	if wait == 0 {
		return 0, nil
	}
	var live appsv1.Deployment // the cache has no managedFields
	err := a.reader.Get(ctx, deployment, &live)
	if client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("reading Deployment %s before letting go of it: %w", deployment, err)
	}
	if err != nil || !mayReturn(&live) {
		return 0, nil
	}
	return wait, nil
}

// mayReturn reports whether the plan of a Deployment may come yet: a GitSource applies
// the Deployment, or a restore has made it. Then it is held, and not by the controller's write.
func mayReturn(live *appsv1.Deployment) bool {
	has := func(manager string) bool {
		return slices.ContainsFunc(live.ManagedFields, func(e metav1.ManagedFieldsEntry) bool { return e.Manager == manager })
	}
	return has(v1alpha1.ManagerGitSync) || engine.Held(live) && !has(v1alpha1.ManagerRollout)
}

// ungoverned asks the API server whether a Deployment still has no plan, before it is
// handed back for that. Another leader may have begun a release of a plan that the cache
// does not have.
func (a *abandonment) ungoverned(ctx context.Context, deployment types.NamespacedName) error {
	var plans v1alpha1.BatchReleaseList
	err := a.reader.List(ctx, &plans, client.InNamespace(deployment.Namespace))
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil // the CRD is gone, and all plans with it
	}
	if err != nil {
		return fmt.Errorf("listing the plans of Deployment %s before it is handed back: %w", deployment, err)
	}
	for i := range plans.Items {
		if br := &plans.Items[i]; br.Spec.WorkloadRef.Name == deployment.Name && (!isGone(br) || returns(*br)) {
			return fmt.Errorf("Deployment %s has the plan %s: %w", deployment, plans.Items[i].Name, failures.ErrChanged)
		}
	}
	return nil
}
