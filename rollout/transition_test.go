package rollout

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/notify"
)

func TestTransition(t *testing.T) {
	at := func(phase v1alpha1.ReleasePhase, step int32, reason string, edit ...func(*v1alpha1.BatchReleaseStatus)) v1alpha1.BatchReleaseStatus {
		s := v1alpha1.BatchReleaseStatus{Phase: phase, CurrentStepIndex: step, Reason: reason, UpdateRevision: "u", UpdateCommit: "c"}
		for _, e := range edit {
			e(&s)
		}
		return s
	}
	back := func(s *v1alpha1.BatchReleaseStatus) {
		s.RollingBack, s.FailedRevision, s.FailedCommit, s.UpdateRevision = true, "u", "c", "before"
	}
	again := func(s *v1alpha1.BatchReleaseStatus) { s.RollingBack = true }
	stable := func(s *v1alpha1.BatchReleaseStatus) { s.UpdateRevision, s.UpdateCommit = "before", "b" }
	for _, tc := range []struct {
		why      string
		old, new v1alpha1.BatchReleaseStatus
		reason   string // empty: nobody is told
		state    notify.State
		rollback bool
	}{
		{"a release begins", at("Completed", 1, engine.ReasonReleaseCompleted, stable), at("Initial", 0, engine.ReasonTakingHold), engine.ReasonReleaseStarted, notify.Pending, false},
		{"it has begun already", at("Initial", 0, engine.ReasonTakingHold), at("RollingUpdate", 0, engine.ReasonUpgrading), "", 0, false},
		{"a gate", at("RollingUpdate", 0, engine.ReasonUpgrading), at("RollingUpdate", 0, engine.ReasonWaitingForApproval), engine.ReasonWaitingForApproval, notify.Pending, false},
		{"the same gate", at("RollingUpdate", 0, engine.ReasonWaitingForApproval), at("RollingUpdate", 0, engine.ReasonWaitingForApproval), "", 0, false},
		{"the next gate, of an empty batch", at("RollingUpdate", 0, engine.ReasonWaitingForApproval), at("RollingUpdate", 1, engine.ReasonWaitingForApproval), engine.ReasonWaitingForApproval, notify.Pending, false},
		{"the end", at("Finalizing", 1, engine.ReasonHandingBack), at("Completed", 1, engine.ReasonReleaseCompleted), engine.ReasonReleaseCompleted, notify.Succeeded, false},
		{"what runs is seen for the first time", at("", 0, ""), at("Completed", 1, engine.ReasonReleaseCompleted), "", 0, false},
		{"the way back begins", at("RollingUpdate", 1, engine.ReasonUpgrading), at("Initial", 0, engine.ReasonRollingBack, back), engine.ReasonRollingBack, notify.Pending, true},
		{"it goes on", at("Initial", 0, engine.ReasonRollingBack, back), at("RollingUpdate", 1, engine.ReasonRollingBack, back), "", 0, false},
		{"it is done", at("Finalizing", 1, engine.ReasonHandingBack, back), at("Completed", 1, engine.ReasonRolledBack, back), engine.ReasonRolledBack, notify.Failed, true},
		{"a rollback of what was complete is done", at("Finalizing", 1, engine.ReasonHandingBack, again), at("Completed", 1, engine.ReasonReleaseCompleted), engine.ReasonReleaseCompleted, notify.Succeeded, true},
		{"a deadline", at("RollingUpdate", 1, engine.ReasonUpgrading), at("RollingUpdate", 1, engine.ReasonProgressDeadlineExceeded), engine.ReasonProgressDeadlineExceeded, notify.Failed, false},
	} {
		br := &v1alpha1.BatchRelease{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Status: tc.old}
		got, ok := transition(br, tc.new, time.Unix(0, 0))
		if ok != (tc.reason != "") || got.Reason != tc.reason || got.State != tc.state || got.Rollback != tc.rollback {
			t.Errorf("%s: %t %+v, want %q", tc.why, ok, got, tc.reason)
		}
		if ok && got.Commit != "c" {
			t.Errorf("%s: about commit %q", tc.why, got.Commit)
		}
	}
}
