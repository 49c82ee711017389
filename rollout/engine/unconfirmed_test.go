package engine_test

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// released is a native Deployment of ten pods that run v3, after v1 and v2. Its BatchRelease
// is from a back-up of the time when v2 had been released.
func released() *world {
	w := newWorld(10, 3, 2, "20%", "50%", "100%")
	w.sets[0], w.template, w.brought, w.records = replicaSet{exists: true}, 2, 1, []int{2, 1}
	w.sets[2] = replicaSet{exists: true, size: 10, ready: 10, statusReady: 10, observed: true, desired: 10, maximum: 13}
	w.status = v1alpha1.BatchReleaseStatus{
		Phase: v1alpha1.PhaseCompleted, CurrentStepIndex: 2, CurrentStepState: v1alpha1.StepCompleted, Reason: v1alpha1.ReasonReleaseCompleted,
		UpdateRevision: hashes[1], UpdateTemplateDigest: digests[1], UpdateCommit: commitOf(1), StableRevision: hashes[1],
	}
	return w
}

// A restored BatchRelease that its GitSource has not written begins no release, moves no
// pod, and keeps its status.
func TestUnconfirmed(t *testing.T) {
	for _, tc := range []struct {
		why   string
		world *world
		edit  func(*engine.Observed)
		does  []string
		stall bool
	}{
		{why: "the status names the release before: it is no rollback", world: released()},
		{why: "no status", world: func() *world { w := released(); w.status = v1alpha1.BatchReleaseStatus{}; return w }()},
		{why: "its GitSource is gone", world: released(), edit: func(o *engine.Observed) { o.SourceGone = true }, stall: true},
		{why: "an approval of the back-up opens no gate", world: at(0, v1alpha1.StepBlocking, 2, steps("20%", "50%", "100%")...), edit: func(o *engine.Observed) {
			o.Release.Spec.Approval = &v1alpha1.Approval{Revision: hashes[1], Commit: commitOf(1), Step: 1}
		}},
		{why: "pods that were approved since stay", world: at(0, v1alpha1.StepBlocking, 5, steps("20%", "50%", "100%")...)},
		{why: "a rollback that was asked for waits", world: at(0, v1alpha1.StepBlocking, 2, steps("20%", "100%")...), edit: func(o *engine.Observed) {
			o.Release.Annotations = map[string]string{v1alpha1.AnnotationRollback: "true"}
		}},
		{why: "a hold that was changed is put back", world: at(0, v1alpha1.StepBlocking, 2, steps("20%", "100%")...),
			edit: func(o *engine.Observed) { o.Deployment.Spec.Paused = false }, does: []string{"hold at template " + hashes[1]}},
		{why: "a hold with no pods is no safe place", world: func() *world {
			w := at(0, v1alpha1.StepBlocking, 2, steps("20%", "100%")...)
			w.n, w.sets[0], w.sets[1] = 0, replicaSet{exists: true, observed: true}, replicaSet{exists: true, observed: true}
			return w
		}(), does: []string{"hand back at the stable template"}},
		{why: "the pods follow a new size", world: func() *world {
			w := at(0, v1alpha1.StepBlocking, 2, steps("20%", "100%")...)
			w.n = 12
			return w
		}(), does: []string{"resize ReplicaSet web-" + hashes[0] + " from 8 to 10"}},
	} {
		t.Run(tc.why, func(t *testing.T) {
			o := tc.world.observe()
			o.Unconfirmed = "GitSource shop/shop has not written it"
			if tc.edit != nil {
				tc.edit(&o)
			}
			d := engine.Decide(o, epoch.Add(time.Hour))
			var does []string
			for _, a := range d.Actions {
				if _, ok := a.(engine.Remember); !ok {
					does = append(does, a.String())
				}
			}
			for _, want := range tc.does {
				if !slices.Contains(does, want) {
					t.Errorf("it does %q, without %q", does, want)
				}
			}
			if len(tc.does) == 0 && len(d.Actions) > 0 {
				t.Errorf("it does %q", does)
			}
			before, s := o.Release.Status, d.Status
			if s.Reason != v1alpha1.ReasonWaitingForSource || s.Message != o.Unconfirmed || d.Wait != engine.RefusedInterval {
				t.Errorf("%s: %s, wait %s", s.Reason, s.Message, d.Wait)
			}
			if got := meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionStalled); got != tc.stall {
				t.Errorf("Stalled=%t", got)
			}
			if meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReady) {
				t.Error("Ready is True")
			}
			if s.Phase != before.Phase || s.UpdateRevision != before.UpdateRevision || s.CurrentStepIndex != before.CurrentStepIndex ||
				s.CurrentStepState != before.CurrentStepState || s.FailedRevision != "" || !slices.Equal(s.OpenedReplicas, before.OpenedReplicas) {
				t.Errorf("the status has become %+v", s)
			}
		})
	}
}

// The GitSource has written a restored BatchRelease, which says what Git says by now. Its
// status is older. No pod of what is under release is taken away, and none is added without
// its gate.
func TestConfirmedWithOlderStatus(t *testing.T) {
	approval := func(step int32) func(*world) {
		return func(w *world) { w.approved = step }
	}
	completed := func(w *world) {
		w.status.Phase, w.status.CurrentStepIndex, w.status.CurrentStepState = v1alpha1.PhaseCompleted, 2, v1alpha1.StepCompleted
		w.status.UpdateRevision, w.status.UpdateTemplateDigest, w.status.UpdateCommit = hashes[0], digests[0], commitOf(0)
	}
	another := func(w *world) { // the release of v1 waits at its second gate
		w.status.UpdateRevision, w.status.UpdateTemplateDigest, w.status.UpdateCommit = hashes[0], digests[0], commitOf(0)
		w.status.CurrentStepIndex, w.status.StableRevision = 1, hashes[2]
	}
	waited := func(w *world) { w.status.Reason = v1alpha1.ReasonWaitingForSource }
	lostStatus := func(w *world) { w.status = v1alpha1.BatchReleaseStatus{} }
	for _, tc := range []struct {
		why    string
		runs   int32
		edits  []func(*world)
		step   int32
		most   int32
		reason string
	}{
		{"the release before is complete in it", 5, []func(*world){completed}, 1, 5, v1alpha1.ReasonWaitingForApproval},
		{"the release before waits in it", 5, []func(*world){another, waited}, 1, 5, v1alpha1.ReasonWaitingForApproval},
		{"in the middle of a step that Git approves", 3, []func(*world){completed, approval(0)}, 1, 5, v1alpha1.ReasonWaitingForApproval},
		{"in the middle of a step, with no approval in Git", 3, []func(*world){completed}, 1, 3, v1alpha1.ReasonWaitingForApproval},
		{"the same release at an earlier gate", 5, []func(*world){waited}, 1, 5, v1alpha1.ReasonWaitingForApproval},
		{"the same release at an earlier gate, approved in Git", 4, []func(*world){waited, approval(0)}, 1, 5, v1alpha1.ReasonWaitingForApproval},
		{"the same release where it stands", 2, []func(*world){waited}, 0, 2, v1alpha1.ReasonWaitingForApproval},
		{"the same release, at an earlier gate, after the last approval", 5, []func(*world){waited, approval(1)}, 2, 10, v1alpha1.ReasonReleaseCompleted},
		{"no status at all: each gate is asked again", 2, []func(*world){lostStatus}, 0, 2, v1alpha1.ReasonWaitingForApproval},
	} {
		t.Run(tc.why, func(t *testing.T) {
			w := at(0, v1alpha1.StepBlocking, tc.runs, steps("20%", "50%", "100%")...)
			w.status.OpenedReplicas, w.status.UpdateTemplateDigest = []intstr.IntOrString{intstr.Parse("20%")}, digests[1]
			for _, edit := range tc.edits {
				edit(w)
			}
			for range 60 {
				d := engine.Decide(w.observe(), epoch.Add(time.Minute))
				for _, e := range d.Events {
					if e.Reason == v1alpha1.ReasonDriftCorrected || e.Reason == v1alpha1.ReasonRollingBack {
						t.Errorf("%s: %s", e.Reason, e.Message)
					}
				}
				for _, a := range d.Actions {
					w.do(a)
				}
				w.status = d.Status
				if w.sets[1].size < tc.runs || w.sets[1].size > tc.most {
					t.Fatalf("%d pods of v2, of %d: %s", w.sets[1].size, tc.runs, w.status.Message)
				}
				w.turnDeployment()
				for i := range w.sets {
					w.turnReplicaSet(i)
					w.sets[i].ready, w.sets[i].pending = w.sets[i].ready+w.sets[i].pending, 0
					w.turnReplicaSet(i)
				}
			}
			if s := w.status; s.Reason != tc.reason || s.CurrentStepIndex != tc.step || w.sets[1].size != tc.most {
				t.Errorf("%d pods of v2, step %d: %s: %s", w.sets[1].size, s.CurrentStepIndex, s.Reason, s.Message)
			}
		})
	}
	t.Run("what runs is released already", func(t *testing.T) {
		w := released()
		w.brought, w.status.Reason = 2, v1alpha1.ReasonWaitingForSource
		d := engine.Decide(w.observe(), epoch)
		if d.Status.Reason != v1alpha1.ReasonReleaseCompleted || d.Status.UpdateRevision != hashes[2] || len(d.Actions)+len(d.Events) > 0 {
			t.Errorf("%s: %s; %v %v", d.Status.Reason, d.Status.Message, d.Actions, d.Events)
		}
	})
}

// The status of a restored BatchRelease is older, and its GitSource has written it before the
// controller has seen it. The controller takes what is above the gates of that status for
// drift. No pod is added without its gate, and what is under release does not become stable
// before it has completed.
func TestConfirmedWithOlderStatus_BeforeTheFirstLook(t *testing.T) {
	another := func(w *world) { // the release of v1 waits at its second gate
		w.status.UpdateRevision, w.status.UpdateTemplateDigest, w.status.UpdateCommit = hashes[0], digests[0], commitOf(0)
		w.status.CurrentStepIndex, w.status.StableRevision = 1, hashes[2]
	}
	approved := func(w *world) { w.approved = 0 }
	for _, tc := range []struct {
		why   string
		runs  int32
		edits []func(*world)
		end   int32
	}{
		{"the release before waits in it", 5, []func(*world){another}, 2},
		{"the release before, in the middle of a step", 3, []func(*world){another}, 2},
		{"the release before, and Git approves the first gate", 3, []func(*world){another, approved}, 5},
		{"the same release at an earlier gate", 5, nil, 2},
		{"the same release at an earlier gate, approved in Git", 4, []func(*world){approved}, 5},
	} {
		t.Run(tc.why, func(t *testing.T) {
			w := at(0, v1alpha1.StepBlocking, tc.runs, steps("20%", "50%", "100%")...)
			w.status.OpenedReplicas, w.status.UpdateTemplateDigest = []intstr.IntOrString{intstr.Parse("20%")}, digests[1]
			for _, edit := range tc.edits {
				edit(w)
			}
			for range 60 {
				before := w.sets[1].size
				d := engine.Decide(w.observe(), epoch.Add(time.Minute))
				for _, a := range d.Actions {
					w.do(a)
				}
				w.status = d.Status
				if now := w.sets[1].size; now > before && now > tc.end {
					t.Fatalf("%d pods of v2, after %d: %s", now, before, w.status.Message)
				}
				if w.status.StableRevision == hashes[1] {
					t.Fatalf("v2 is stable, with %d pods", w.sets[1].size)
				}
				w.turnDeployment()
				for i := range w.sets {
					w.turnReplicaSet(i)
					w.sets[i].ready, w.sets[i].pending = w.sets[i].ready+w.sets[i].pending, 0
					w.turnReplicaSet(i)
				}
			}
			if s := w.status; s.Reason != v1alpha1.ReasonWaitingForApproval || w.sets[1].size != tc.end {
				t.Errorf("%d pods of v2, step %d, stable %s: %s: %s", w.sets[1].size, s.CurrentStepIndex, s.StableRevision, s.Reason, s.Message)
			}
		})
	}
}
