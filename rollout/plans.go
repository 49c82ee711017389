package rollout

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// gather is how long after a ReplicaSet has changed its release is looked at.
const gather = 25 * time.Millisecond

// isGone reports whether a plan governs nothing any more: it is being deleted. A
// finalizer of another controller may keep the object for ever, and would keep the
// hold with it. Its last status says that the Deployment is handed back. If the branch has the plan again, the hold
// stays; see [returns].
func isGone(br *v1alpha1.BatchRelease) bool { return br.DeletionTimestamp != nil }

// planIndex finds plans by the Deployment that they govern.
type planIndex struct{ client.Reader }

// of returns the plans of a Deployment. One that is being deleted counts as gone.
func (p planIndex) of(ctx context.Context, namespace, deployment string) ([]v1alpha1.BatchRelease, error) {
	var plans v1alpha1.BatchReleaseList
	if err := p.List(ctx, &plans, client.InNamespace(namespace), client.MatchingFields{v1alpha1.FieldWorkload: deployment}); err != nil {
		return nil, fmt.Errorf("listing the plans of Deployment %s/%s: %w", namespace, deployment, err)
	}
	return slices.DeleteFunc(plans.Items, func(br v1alpha1.BatchRelease) bool { return isGone(&br) }), nil
}

// ofDeployment maps a Deployment to its plans; a held one without any to a request that finds no plan and hands it back.
func (p planIndex) ofDeployment(ctx context.Context, o client.Object) []reconcile.Request {
	d, ok := o.(*appsv1.Deployment)
	held := ok && (v1alpha1.HasHeld(d.Labels) || d.Spec.Paused && d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType)
	return p.requests(ctx, o.GetNamespace(), o.GetName(), held)
}

// noPlan begins the name of a request for a Deployment that no plan governs, and that is to
// be let go of. No BatchRelease has such a name.
const noPlan = "held/"

// noOwner begins the name of a request for a ReplicaSet with the label of a hold that no
// object controls.
const noOwner = "orphan/"

// rivals maps a plan to all plans for the same Deployment: when the one that
// counts goes, another does.
func (p planIndex) rivals(ctx context.Context, o client.Object) []reconcile.Request {
	br, ok := o.(*v1alpha1.BatchRelease)
	if !ok {
		return nil
	}
	return p.requests(ctx, br.Namespace, br.Spec.WorkloadRef.Name, false)
}

// ofOwned maps what a Deployment owns to the Deployment's plans. A record of one without any
// was left while no controller ran, and goes. So does the label of a hold.
func (p planIndex) ofOwned(ctx context.Context, o client.Object) []reconcile.Request {
	labelled := v1alpha1.HasHeld(o.GetLabels())
	for _, owner := range o.GetOwnerReferences() {
		if owner.Kind == "Deployment" {
			return p.requests(ctx, o.GetNamespace(), owner.Name, labelled || o.GetLabels()[plan.LabelManagedBy] == plan.ManagedBy)
		}
	}
	if labelled {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: noOwner + o.GetName()}}}
	}
	return nil
}

// gathered asks for a round a moment after a ReplicaSet has changed. Pods come and go in
// bursts, and the ReplicaSet controller writes a status for each. A round at the first of
// them would decide on half of what happens, and its writes would conflict with the
// statuses that follow.
func (p planIndex) gathered() handler.EventHandler {
	look := func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request], sets ...client.Object) {
		for _, rs := range sets {
			for _, request := range p.ofOwned(ctx, rs) {
				q.AddAfter(request, gather)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			look(ctx, q, e.Object)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			look(ctx, q, e.ObjectOld, e.ObjectNew)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			look(ctx, q, e.Object)
		},
	}
}

// requests returns a request for each plan of a Deployment. With orNone and without any, it returns one that finds no plan.
func (p planIndex) requests(ctx context.Context, namespace, deployment string, orNone bool) []reconcile.Request {
	plans, err := p.of(ctx, namespace, deployment)
	if err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Mapping a change to its plans")
		return nil
	}
	if len(plans) == 0 && orNone {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: noPlan + deployment}}}
	}
	requests := make([]reconcile.Request, len(plans))
	for i := range plans {
		requests[i].NamespacedName = client.ObjectKeyFromObject(&plans[i])
	}
	return requests
}
