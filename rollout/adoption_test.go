package rollout_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// notReady waits until the controller has seen the BatchRelease as it is now, and
// fails if it says Ready then.
func (s *env) notReady(reason string) {
	s.Helper()
	clustertest.Wait(s, reason, func() error {
		if br := s.release(); br.Status.ObservedGeneration != br.Generation || br.Status.Reason != reason {
			return fmt.Errorf("%s: %s", br.Status.Reason, br.Status.Message)
		}
		return nil
	})
	br := s.release()
	if c := meta.FindStatusCondition(br.Status.Conditions, v1alpha1.ConditionReady); c == nil || c.Status != "False" || c.ObservedGeneration != br.Generation {
		s.Errorf("Ready is %+v at generation %d", c, br.Generation)
	}
}

// records returns the ControllerRevisions of the controller in the namespace.
func (s *env) records() []appsv1.ControllerRevision {
	s.Helper()
	var list appsv1.ControllerRevisionList
	s.must(s.c.Client.List(s.Context(), &list, client.InNamespace(s.ns), client.MatchingLabels{plan.LabelManagedBy: plan.ManagedBy}))
	return list.Items
}

// A plan comes to a Deployment whose native rollout is stuck. It is not Ready, and
// what does not run is not stable: a release that is rolled back goes back to what
// ran before.
func TestAdoption_StuckNativeRollout(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.install(4)
	s.kubectl("-n", s.ns, "set", "image", "deployment/web", "web=registry.example.org/web:broken")
	s.become(map[string]int32{"v1": 3, "broken": 2})
	s.plan("1", "100%")
	s.edit(func(spec *v1alpha1.BatchReleaseSpec) {
		spec.Template.Spec.Containers[0].Image = "registry.example.org/web:broken"
	})
	startControllerIn(t, s.c, s.ns)
	s.notReady(v1alpha1.ReasonNativeRollout)
	if records := s.records(); len(records) != 0 {
		t.Errorf("%d records of what has not proved good", len(records))
	}
	s.become(map[string]int32{"v1": 3, "broken": 2})

	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
	s.kubectl("-n", s.ns, "annotate", "batchrelease", "web", "tranche.dev/rollback=true")
	s.waitFor(v1alpha1.ReasonRolledBack, 1, map[string]int32{"v1": 4})
	if image := s.deployment("web").Spec.Template.Spec.Containers[0].Image; !strings.HasSuffix(image, ":v1") {
		t.Errorf("rolled back to %s", image)
	}
	s.untouched()
}

// A Deployment that is to be left alone is not Ready while another template waits
// for it; nothing moves until it is governed again.
func TestReconcileDisabled_IsNotReadyWithANewTemplate(t *testing.T) {
	t.Parallel()
	s, _ := newEnvWithController(t)
	s.install(2)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.kubectl("-n", s.ns, "annotate", "deployment/web", "tranche.dev/reconcile=disabled")
	s.waitFor(v1alpha1.ReasonReleasePaused, 1, nil)
	clustertest.Wait(t, "Ready while the template is the one that runs", func() error {
		if br := s.release(); !meta.IsStatusConditionTrue(br.Status.Conditions, v1alpha1.ConditionReady) {
			return fmt.Errorf("%+v", br.Status.Conditions)
		}
		return nil
	})
	s.bring("v2")
	s.notReady(v1alpha1.ReasonReleasePaused)
	s.become(map[string]int32{"v1": 2})
	if d := s.deployment("web"); d.Spec.Paused || d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
		t.Errorf("it is held: paused=%t, strategy %s", d.Spec.Paused, d.Spec.Strategy.Type)
	}
	s.kubectl("-n", s.ns, "annotate", "deployment/web", "tranche.dev/reconcile-")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 1, "v2": 1})
}

// A revision that was stable before the stable one has no gate open in the middle of
// another release. The stable revision is a way back, at once.
func TestWayBack_InTheMiddle(t *testing.T) {
	t.Parallel()
	s, _ := newEnvWithController(t)
	s.install(4)
	s.plan("1", "50%", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 2, nil)
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
	s.approve(1)
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 2, map[string]int32{"v2": 4})
	s.bring("v3")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v2": 3, "v3": 1})
	s.bring("v1")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v2": 3, "v1": 1})
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 2, map[string]int32{"v2": 4})
	s.untouched()
}

// A first install whose pods never become available is not Ready, and says why once
// the native controller gives it up. It is the plan's once it has rolled out.
func TestAdoption_FirstInstallFails(t *testing.T) {
	t.Parallel()
	s, _ := newEnvWithController(t)
	s.plan("1", "100%")
	s.edit(func(spec *v1alpha1.BatchReleaseSpec) {
		spec.Template.Spec.Containers[0].Image = "registry.example.org/web:broken"
	})
	s.create("web", 3, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Image = "registry.example.org/web:broken"
		d.Spec.ProgressDeadlineSeconds = ptr.To[int32](5)
	})
	clustertest.Wait(t, "the pods", func() error {
		if d := s.deployment("web"); d.Status.UpdatedReplicas != 3 {
			return fmt.Errorf("%d pods", d.Status.UpdatedReplicas)
		}
		return nil
	})
	s.notReady(v1alpha1.ReasonNativeRollout)
	clustertest.Wait(t, "what the native controller says", func() error {
		at := s.release().Status
		if at.Reason != v1alpha1.ReasonNativeRollout || !strings.Contains(at.Message, "3 of 3 pods are updated and 0 available") || !strings.Contains(at.Message, "timed out progressing") || !strings.Contains(at.Message, "3 pods not ready") {
			return fmt.Errorf("%s: %s", at.Reason, at.Message)
		}
		return nil
	})
	s.isStalled()
	if h := s.release().Status.History; len(h) > 0 {
		t.Errorf("history %+v", h)
	}
	s.setReady("broken", true)
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"broken": 3})
}

// A rollback of a release that was complete is marked as one in the history, which
// tells it from the release, and in the events.
func TestRollback_AfterCompletionIsMarked(t *testing.T) {
	t.Parallel()
	s := atGate(t, 2)
	s.finish(2)
	s.bring("v1")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v1": 2})
	s.hasEvent(v1alpha1.ReasonRolledBack, "all pods run "+s.release().Status.StableRevision+" again")
	var got []string
	for _, h := range s.release().Status.History {
		got = append(got, fmt.Sprint(h.Outcome, " ", h.Rollback))
	}
	if want := []string{"Completed true", "Completed false"}; !slices.Equal(got, want) {
		t.Errorf("history %v, want %v", got, want)
	}
}
