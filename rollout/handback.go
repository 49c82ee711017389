package rollout

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/managedfields"
	"github.com/tranche-dev/tranche/rollout/tell"
)

// tryHandBack has the API server try the hand-back that a decision contains, as a dry run
// and as the account that writes. A policy that has come under the hold may change the
// pod template in that very write. The native controller would then roll the changed
// template out past the gates. tryHandBack returns what is changed as refused, and any
// other problem as err. Without a hand-back it asks nothing.
//
// At 0 replicas there is no pod to replace. A hold with no pods is no safe place
// (H4), so nothing is tried.
func (r *reconciler) tryHandBack(ctx context.Context, o engine.Observed, d engine.Decision) (refused, err error) {
	action, ok := handBackOf(d.Actions)
	if !ok || ptr.Deref(o.Deployment.Spec.Replicas, 1) == 0 {
		return nil, nil
	}
	a := &actor{Client: r.Client, as: r.asAccount(ctx, o.Release), d: o.Deployment}
	if err := a.handBack(action, client.DryRunAll); err != nil {
		return nil, fmt.Errorf("dry run of the hand-back of Deployment %s/%s: %w", o.Deployment.Namespace, o.Deployment.Name, err)
	}
	fields := a.changedBy(action)
	if len(fields) == 0 || runs(o.ReplicaSets, &a.written.Spec.Template) {
		return nil, nil
	}
	return fmt.Errorf("an admission policy or webhook would change %s of Deployment %s at the hand-back. "+
		"The native controller would then replace all pods at once, without gates. "+
		"Remove the policy, or exempt the Deployment from it",
		strings.Join(fields, ", "), o.Deployment.Name), nil
}

func handBackOf(actions []engine.Action) (engine.HandBack, bool) {
	for _, a := range actions {
		if h, ok := a.(engine.HandBack); ok {
			return h, true
		}
	}
	return engine.HandBack{}, false
}

// runs reports whether a ReplicaSet with a size has the template. One that is being deleted
// gets no pod.
func runs(sets []*appsv1.ReplicaSet, t *corev1.PodTemplateSpec) bool {
	return slices.ContainsFunc(sets, func(rs *appsv1.ReplicaSet) bool {
		return rs.DeletionTimestamp == nil && ptr.Deref(rs.Spec.Replicas, 1) > 0 && plan.EqualTemplate(&rs.Spec.Template, t)
	})
}

// changedBy names the fields of the pod template that the API server changed in its
// answer to a hand-back. They differ from those that were sent, or from those that were
// on the Deployment.
func (a *actor) changedBy(action engine.HandBack) []string {
	want := action.Template
	if want == nil {
		want = &a.d.Spec.Template
	}
	if a.written == nil || plan.EqualTemplate(want, &a.written.Spec.Template) {
		return nil
	}
	return managedfields.Different(want, &a.written.Spec.Template)
}

// warnOfChange warns of a pod template that admission has changed in a hand-back that was
// made all the same. The plan is gone, there are no pods, or the policy leaves dry runs
// alone.
func warnOfChange(t *tell.Teller, a *actor, action engine.Action, about ...client.Object) {
	handBack, ok := action.(engine.HandBack)
	if !ok {
		return
	}
	fields := a.changedBy(handBack)
	if len(fields) == 0 {
		return
	}
	for _, o := range about {
		t.Tell(o, engine.Event{Warning: true, Reason: v1alpha1.ReasonHandedBack, Message: "An admission policy or webhook changed " +
			strings.Join(fields, ", ") + " at the hand-back; the native controller replaces the pods that run otherwise"})
	}
}
