package engine_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
)

// A write is refused after pods have come. The status counts the pods that were observed,
// whether the round was refused its write or knows before that it would be.
func TestRefused_CountsWhatWasObserved(t *testing.T) {
	type counts struct{ all, updated, ready, available int32 }
	refused := errors.New("refused")
	for name, tc := range map[string]struct {
		status func(o engine.Observed) v1alpha1.BatchReleaseStatus
		edit   func(w *world)
		want   counts
	}{
		"the write": {status: func(o engine.Observed) v1alpha1.BatchReleaseStatus {
			s, _ := engine.Refused(o, refused, epoch)
			return s
		}, want: counts{10, 9, 9, 8}},
		"it is known before": {status: func(o engine.Observed) v1alpha1.BatchReleaseStatus {
			o.Refused, o.RefusedReason = refused, v1alpha1.ReasonWriteRefused
			return engine.Decide(o, epoch).Status
		}, want: counts{10, 9, 9, 8}},
		"the plan cannot be used": {status: func(o engine.Observed) v1alpha1.BatchReleaseStatus {
			o.Release.Spec.Strategy.Steps = steps("50%", "20%", "100%")
			return engine.Decide(o, epoch).Status
		}, want: counts{10, 9, 9, 8}},
		"another release has come, which cannot begin": {status: func(o engine.Observed) v1alpha1.BatchReleaseStatus {
			s, _ := engine.Refused(o, refused, epoch)
			return s
		}, edit: func(w *world) { w.brought = 2 }, want: counts{10, 9, 9, 8}},
		"nothing was observed": {status: func(o engine.Observed) v1alpha1.BatchReleaseStatus {
			s, _ := engine.Refused(engine.Observed{Release: o.Release}, refused, epoch)
			return s
		}, want: counts{10, 4, 4, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			w := at(1, "Upgrade", 9, steps("40%", "90%", "100%")...)
			w.status.UpdateTemplateDigest = plan.TemplateDigest(templates[1])
			w.status.Replicas, w.status.UpdatedReplicas, w.status.UpdatedReadyReplicas, w.status.UpdatedAvailableReplicas = 10, 4, 4, 4
			if tc.edit != nil {
				tc.edit(w)
			}
			o := w.observe()
			for _, rs := range o.ReplicaSets {
				if facts.Size(rs) == 9 {
					rs.Status.Replicas, rs.Status.AvailableReplicas = 9, 8
				}
			}
			s := tc.status(o)
			if diff := cmp.Diff(tc.want, counts{s.Replicas, s.UpdatedReplicas, s.UpdatedReadyReplicas, s.UpdatedAvailableReplicas}, cmp.AllowUnexported(counts{})); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
			if s.UpdateRevision != hashes[1] {
				t.Errorf("it is about %s", s.UpdateRevision)
			}
		})
	}
}

// Pods come and go while writes are refused. The status is not written for each of them.
func TestRefused_Pace(t *testing.T) {
	refused := errors.New("refused")
	w := at(1, "Upgrade", 9, steps("40%", "90%", "100%")...)
	w.status.UpdateTemplateDigest = plan.TemplateDigest(templates[1])
	first, _ := engine.Refused(w.observe(), refused, epoch)
	w.status = stored(first)
	w.sets[1].ready, w.sets[1].statusReady = 7, 7
	if s, wait := engine.Refused(w.observe(), refused, epoch.Add(time.Second)); s.UpdatedReadyReplicas != 9 || wait > engine.CountInterval {
		t.Errorf("%d ready pods after a second, and the next look after %s", s.UpdatedReadyReplicas, wait)
	}
	if s, _ := engine.Refused(w.observe(), refused, epoch.Add(engine.CountInterval)); s.UpdatedReadyReplicas != 7 {
		t.Errorf("%d ready pods after %s", s.UpdatedReadyReplicas, engine.CountInterval)
	}
}

// A write is refused for longer than the deadline of the step, and passes then. The step
// has as much time left as it had before, and nothing is rolled back.
func TestRefused_StopsTheDeadline(t *testing.T) {
	refused, later := errors.New("refused"), epoch.Add(time.Hour)
	w := at(1, "Upgrade", 4, steps("40%", "90%", "100%")...)
	w.status.UpdateTemplateDigest = plan.TemplateDigest(templates[1])
	w.status.Reason, w.status.ReasonTime = v1alpha1.ReasonUpgrading, &metav1.Time{Time: epoch.Add(-time.Minute)}
	w.spec.Strategy.OnFailure = v1alpha1.FailureRollback
	s, _ := engine.Refused(w.observe(), refused, epoch)
	w.status = stored(s)
	if d := engine.Decide(w.observe(), later); d.Status.RollingBack || d.Status.Reason != v1alpha1.ReasonUpgrading || len(d.Actions) == 0 {
		t.Errorf("%s: %s: %v", d.Status.Reason, d.Status.Message, d.Actions)
	}
	w.sets[0] = replicaSet{exists: true, size: 1, ready: 1, statusReady: 1, observed: true, desired: 10, maximum: 13}
	w.sets[1] = replicaSet{exists: true, size: 9, ready: 5, statusReady: 5, pending: 4, observed: true, desired: 10, maximum: 13}
	w.status.BestAvailableReplicas = 5
	d := engine.Decide(w.observe(), later)
	if want := time.Duration(v1alpha1.DefaultProgressDeadlineSeconds) * time.Second; d.Status.RollingBack || d.Status.Reason != v1alpha1.ReasonUpgrading || d.Status.ProgressTime == nil ||
		later.Sub(d.Status.ProgressTime.Time) > want {
		t.Errorf("%s: %s: %v", d.Status.Reason, d.Status.Message, d.Status.ProgressTime)
	}
}
