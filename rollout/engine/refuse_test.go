package engine_test

import (
	"errors"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// idle returns a world in which the release of v2 has ended, and runs everywhere.
func idle() *world {
	w := newWorld(10, 3, 2, "20%", "100%")
	w.brought, w.template, w.records = 1, 1, []int{1, 0}
	w.sets[0] = replicaSet{exists: true, observed: true}
	w.sets[1] = replicaSet{exists: true, size: 10, ready: 10, statusReady: 10, observed: true, desired: 10, maximum: 13}
	w.status = v1alpha1.BatchReleaseStatus{
		Phase: v1alpha1.PhaseCompleted, CurrentStepIndex: 1, CurrentStepState: v1alpha1.StepCompleted,
		StableRevision: hashes[1], UpdateRevision: hashes[1], UpdateTemplateDigest: digests[1], UpdateCommit: commitOf(1),
		Reason: v1alpha1.ReasonReleaseCompleted, Replicas: 10, UpdatedReplicas: 10, UpdatedReadyReplicas: 10, UpdatedAvailableReplicas: 10,
	}
	return w
}

// refusals are why a release cannot begin, each with its reason.
var refusals = []struct {
	reason string
	edit   func(*engine.Observed)
}{
	{v1alpha1.ReasonUnsupportedStrategy, func(o *engine.Observed) {
		o.Release.Spec.DeploymentStrategy = &appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	}},
	{v1alpha1.ReasonUnsupportedStrategy, func(o *engine.Observed) {
		none := intstr.FromInt32(0)
		o.Release.Spec.DeploymentStrategy = &appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &none, MaxUnavailable: &none}}
	}},
	{v1alpha1.ReasonInvalidPlan, func(o *engine.Observed) { o.Release.Spec.Strategy.Steps = nil }},
	{v1alpha1.ReasonInvalidPlan, func(o *engine.Observed) { o.Release.Spec.Strategy.Steps = steps("50%", "20%", "100%") }},
	{v1alpha1.ReasonTemplateRefused, func(o *engine.Observed) { o.Refused, o.Template = errors.New("the selector does not match"), nil }},
	{v1alpha1.ReasonHandBackRefused, func(o *engine.Observed) {
		o.Refused, o.RefusedReason = errors.New("a policy"), v1alpha1.ReasonHandBackRefused
	}},
	{v1alpha1.ReasonHandBackRefused, func(o *engine.Observed) {
		o.Refused, o.RefusedReason, o.Template = errors.New("no right"), v1alpha1.ReasonHandBackRefused, nil
	}},
	{v1alpha1.ReasonWriteRefused, func(o *engine.Observed) {
		o.Refused, o.RefusedReason = errors.New("a webhook"), v1alpha1.ReasonWriteRefused
	}},
	{v1alpha1.ReasonReleasePaused, func(o *engine.Observed) {
		o.Deployment.Annotations = map[string]string{v1alpha1.AnnotationReconcile: v1alpha1.AnnotationReconcileDisabled}
	}},
}

// Git brings a release to an idle Deployment, and it cannot begin. The status is then
// that of this release, at the first of its steps, and not that of the release before. It
// goes on from there once nothing refuses it, and ends if Git takes it back.
func TestRefused_BeforeItBegins(t *testing.T) {
	for _, tc := range refusals {
		t.Run(tc.reason, func(t *testing.T) {
			w := idle()
			w.brought = 2
			refused := func() engine.Decision {
				o := w.observe()
				tc.edit(&o)
				return engine.Decide(o, epoch)
			}
			for range 2 { // and it stays so
				d := refused()
				s := d.Status
				if len(d.Actions) > 0 || s.Reason != tc.reason || meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReady) {
					t.Fatalf("%s: %s: %v", s.Reason, s.Message, d.Actions)
				}
				named := s.UpdateRevision == hashes[2] || s.UpdateRevision == "" // not known, while the API server does not complete it
				if s.Phase != v1alpha1.PhaseInitial || s.CurrentStepIndex != 0 || s.CurrentStepState != v1alpha1.StepInitial || s.UpdatedReplicas != 0 ||
					s.UpdateCommit != commitOf(2) || s.StableRevision != hashes[1] || !named {
					t.Fatalf("%s step %d %s, %d updated, %s of %s over %s", s.Phase, s.CurrentStepIndex, s.CurrentStepState, s.UpdatedReplicas, s.UpdateRevision, s.UpdateCommit, s.StableRevision)
				}
				w.status = stored(s)
			}
			at := w.status

			w.status = stored(engine.Decide(w.observe(), epoch).Status) // nothing refuses it any more
			for range 2 {
				w.status = stored(engine.Decide(w.observe(), epoch).Status)
			}
			if s := w.status; s.Phase != v1alpha1.PhaseInitial || s.UpdateRevision != hashes[2] || s.CurrentStepIndex != 0 || len(s.History) > 0 ||
				!slices.Equal(s.OpenedReplicas, []intstr.IntOrString{intstr.FromString("20%")}) {
				t.Errorf("it does not go on: %s step %d of %s, opened %v, history %v", s.Phase, s.CurrentStepIndex, s.UpdateRevision, s.OpenedReplicas, s.History)
			}

			w.status, w.brought = at, 1
			d := refused()
			w.status = stored(d.Status)
			if s := w.status; s.Phase != v1alpha1.PhaseCompleted || s.UpdateRevision != hashes[1] || s.UpdateCommit != commitOf(1) || s.CurrentStepIndex < 0 || len(d.Actions) > 0 {
				t.Errorf("it does not end: %s step %d of %s, %s; %v", s.Phase, s.CurrentStepIndex, s.UpdateRevision, s.UpdateCommit, d.Actions)
			}
		})
	}
}
