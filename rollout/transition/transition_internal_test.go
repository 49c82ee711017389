package transition

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
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
		reason   string // empty: no notification
		state    notify.State
		rollback bool
	}{
		{"a release begins", at("Completed", 1, v1alpha1.ReasonReleaseCompleted, stable), at("Initial", 0, v1alpha1.ReasonTakingHold), v1alpha1.ReasonReleaseStarted, notify.Pending, false},
		{"a release that cannot begin", at("Completed", 1, v1alpha1.ReasonReleaseCompleted, stable), at("Initial", 0, v1alpha1.ReasonUnsupportedStrategy), v1alpha1.ReasonUnsupportedStrategy, notify.Failed, false},
		{"then it begins", at("Initial", 0, v1alpha1.ReasonUnsupportedStrategy), at("Initial", 0, v1alpha1.ReasonTakingHold), v1alpha1.ReasonReleaseStarted, notify.Pending, false},
		{"it is resumed before its first pod", at("Initial", 0, v1alpha1.ReasonReleasePaused), at("Initial", 0, v1alpha1.ReasonTakingHold), "", 0, false},
		{"it has begun already", at("Initial", 0, v1alpha1.ReasonTakingHold), at("RollingUpdate", 0, v1alpha1.ReasonUpgrading), "", 0, false},
		{"a gate", at("RollingUpdate", 0, v1alpha1.ReasonUpgrading), at("RollingUpdate", 0, v1alpha1.ReasonWaitingForApproval), v1alpha1.ReasonWaitingForApproval, notify.Pending, false},
		{"the same gate", at("RollingUpdate", 0, v1alpha1.ReasonWaitingForApproval), at("RollingUpdate", 0, v1alpha1.ReasonWaitingForApproval), "", 0, false},
		{"the next gate, of an empty batch", at("RollingUpdate", 0, v1alpha1.ReasonWaitingForApproval), at("RollingUpdate", 1, v1alpha1.ReasonWaitingForApproval), v1alpha1.ReasonWaitingForApproval, notify.Pending, false},
		{"the end", at("Finalizing", 1, v1alpha1.ReasonHandingBack), at("Completed", 1, v1alpha1.ReasonReleaseCompleted), v1alpha1.ReasonReleaseCompleted, notify.Succeeded, false},
		{"what runs is seen for the first time", at("", 0, ""), at("Completed", 1, v1alpha1.ReasonReleaseCompleted), "", 0, false},
		{"the way back begins", at("RollingUpdate", 1, v1alpha1.ReasonUpgrading), at("Initial", 0, v1alpha1.ReasonRollingBack, back), v1alpha1.ReasonRollingBack, notify.Pending, true},
		{"it goes on", at("Initial", 0, v1alpha1.ReasonRollingBack, back), at("RollingUpdate", 1, v1alpha1.ReasonRollingBack, back), "", 0, false},
		{"it is done", at("Finalizing", 1, v1alpha1.ReasonHandingBack, back), at("Completed", 1, v1alpha1.ReasonRolledBack, back), v1alpha1.ReasonRolledBack, notify.Failed, true},
		{"a rollback of what was complete is done", at("Finalizing", 1, v1alpha1.ReasonHandingBack, again), at("Completed", 1, v1alpha1.ReasonReleaseCompleted), v1alpha1.ReasonReleaseCompleted, notify.Succeeded, true},
		{"a deadline", at("RollingUpdate", 1, v1alpha1.ReasonUpgrading), at("RollingUpdate", 1, v1alpha1.ReasonProgressDeadlineExceeded), v1alpha1.ReasonProgressDeadlineExceeded, notify.Failed, false},
	} {
		br := &v1alpha1.BatchRelease{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Status: tc.old}
		got, ok := changed(br, tc.new, time.Unix(0, 0))
		if ok != (tc.reason != "") || got.Reason != tc.reason || got.State != tc.state || got.Rollback != tc.rollback {
			t.Errorf("%s: %t %+v, want %q", tc.why, ok, got, tc.reason)
		}
		if ok && got.Commit != "c" {
			t.Errorf("%s: about commit %q", tc.why, got.Commit)
		}
	}
}

// The other notifications of a release, and what they contain.
func TestTransitions(t *testing.T) {
	const commit = "3f2c1e0000000000000000000000000000000000"
	at := func(edit ...func(*v1alpha1.BatchReleaseStatus)) v1alpha1.BatchReleaseStatus {
		s := v1alpha1.BatchReleaseStatus{Phase: "RollingUpdate", Reason: v1alpha1.ReasonUpgrading, UpdateRevision: "u", UpdateCommit: commit}
		for _, e := range edit {
			e(&s)
		}
		return s
	}
	gate := func(s *v1alpha1.BatchReleaseStatus) { s.Reason = v1alpha1.ReasonWaitingForApproval }
	approval := func(by, in string) func(*v1alpha1.BatchReleaseStatus) {
		return func(s *v1alpha1.BatchReleaseStatus) {
			s.Approvals = append(s.Approvals, v1alpha1.StepApproval{Step: int32(len(s.Approvals)), By: by, Commit: in})
		}
	}
	next := func(s *v1alpha1.BatchReleaseStatus) {
		s.Phase, s.Reason, s.UpdateRevision, s.UpdateCommit, s.Approvals = "Initial", v1alpha1.ReasonTakingHold, "v", "4f2c1e0000000000000000000000000000000000", nil
		s.History = append([]v1alpha1.ReleaseRecord{{Revision: "u", Commit: commit, Outcome: v1alpha1.OutcomeSuperseded, EndTime: metav1.Unix(9, 0)}}, s.History...)
	}
	back := func(s *v1alpha1.BatchReleaseStatus) {
		s.Phase, s.Reason, s.RollingBack = "Initial", v1alpha1.ReasonRollingBack, true
	}
	failed := func(s *v1alpha1.BatchReleaseStatus) { s.Reason = v1alpha1.ReasonProgressDeadlineExceeded }
	for _, tc := range []struct {
		why      string
		old, new v1alpha1.BatchReleaseStatus
		rejected string
		want     []string
	}{
		{"a gate", at(), at(gate), "", []string{"WaitingForApproval '' by Ada at https://git.example.org/shop/commit/" + commit + ", next tranche approve web -n shop --push"}},
		{"an approval", at(gate), at(approval("Ada", "0123456789abcdef")), "", []string{"StepApproved 'step 0 by Ada of commit 0123456789ab' by Ada at https://git.example.org/shop/commit/" + commit + ", next "}},
		{"an approval in the cluster", at(gate), at(approval("cluster", "")), "", []string{"StepApproved 'step 0 in the cluster' by Ada at https://git.example.org/shop/commit/" + commit + ", next "}},
		{"an approval for which an older one made room", at(approval("Ada", ""), approval("Ada", "")), at(func(s *v1alpha1.BatchReleaseStatus) {
			s.Approvals = []v1alpha1.StepApproval{{Step: 0, By: "Ada"}, {Step: 1, By: "Eve", Time: metav1.Unix(8, 0)}}
		}), "", []string{"StepApproved 'step 1 by Eve' by Ada at https://git.example.org/shop/commit/" + commit + ", next "}},
		{"the same approval", at(approval("Ada", "")), at(approval("Ada", "")), "", nil},
		{"another release begins", at(gate, approval("Ada", "")), at(next), "", []string{
			"ReleaseSuperseded 'u by v of commit 4f2c1e000000' by Ada at https://git.example.org/shop/commit/" + commit + ", next ",
			"ReleaseStarted '' by  at https://git.example.org/shop/commit/4f2c1e0000000000000000000000000000000000, next "}},
		{"it has begun", at(next), at(next, func(s *v1alpha1.BatchReleaseStatus) { s.Phase, s.Reason = "RollingUpdate", v1alpha1.ReasonUpgrading }), "", nil},
		{"a rejection", at(gate), at(back), "it is slow", []string{"RollingBack '; rejected by Ada: it is slow' by Ada at https://git.example.org/shop/commit/" + commit + ", next "}},
		{"a deadline", at(), at(failed), "", []string{"ProgressDeadlineExceeded '' by Ada at https://git.example.org/shop/commit/" + commit + ", next tranche rollback web -n shop --push"}},
	} {
		br := &v1alpha1.BatchRelease{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: map[string]string{
			v1alpha1.AnnotationCommitAuthor: "Ada", v1alpha1.AnnotationCommitURL: "https://git.example.org/shop/commit/" + commit, v1alpha1.AnnotationRejected: tc.rejected,
		}}, Spec: v1alpha1.BatchReleaseSpec{Commit: commit}, Status: tc.old}
		var got []string
		for _, n := range Of(br, tc.new, time.Unix(9, 0)) {
			got = append(got, n.Reason+" '"+n.Message+"' by "+n.Author+" at "+n.Link+", next "+n.Next)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.why, diff)
		}
	}
}

// A release that is replaced or rolled back is notified of as a failure of its commit, once.
func TestTransitions_Replaced(t *testing.T) {
	at := func(phase v1alpha1.ReleasePhase, reason, commit string, edit ...func(*v1alpha1.BatchReleaseStatus)) v1alpha1.BatchReleaseStatus {
		s := v1alpha1.BatchReleaseStatus{Phase: phase, Reason: reason, UpdateRevision: "of-" + commit, UpdateCommit: commit}
		for _, e := range edit {
			e(&s)
		}
		return s
	}
	record := func(s *v1alpha1.BatchReleaseStatus) {
		r := v1alpha1.ReleaseRecord{Revision: "of-v2", Commit: "v2", Outcome: v1alpha1.OutcomeRolledBack, EndTime: metav1.Unix(8, 0)}
		s.History = []v1alpha1.ReleaseRecord{r}
	}
	back := func(s *v1alpha1.BatchReleaseStatus) { record(s); s.RollingBack = true }
	failed := func(s *v1alpha1.BatchReleaseStatus) {
		s.UpdateRevision, s.FailedRevision, s.FailedCommit, s.FailedMessage = "of-v1", "of-v2", "v2", "no progress"
	}
	gate := at("RollingUpdate", v1alpha1.ReasonWaitingForApproval, "v2")
	reverting := at("Initial", v1alpha1.ReasonRollingBack, "revert", back)
	failing := at("Initial", v1alpha1.ReasonRollingBack, "v2", back, failed)
	reverted := at("Completed", v1alpha1.ReasonReleaseCompleted, "revert", record)
	next := at("Initial", v1alpha1.ReasonTakingHold, "v3", record)
	for _, tc := range []struct {
		why      string
		old, new v1alpha1.BatchReleaseStatus
		want     []string
	}{
		{"a revert", gate, reverting, []string{"v2: ReleaseSuperseded of-v2 by of-revert of commit revert", "revert: RollingBack "}},
		{"it goes on", reverting, reverting, nil},
		{"it is done", reverting, reverted, []string{"revert: ReleaseCompleted rolled back: "}},
		{"it is replaced", reverting, next, []string{"revert: ReleaseSuperseded of-revert by of-v3 of commit v3", "v3: ReleaseStarted "}},
		{"a revert at no pods", gate, reverted, []string{
			"v2: ReleaseSuperseded of-v2 by of-revert of commit revert", "revert: ReleaseCompleted "}},
		{"a failure", gate, failing, []string{"v2: RollingBack : no progress"}},
		{"Git has a revert", failing, reverted, []string{
			"v2: RolledBack of-v2 was rolled back to of-v1: no progress", "revert: ReleaseCompleted rolled back: "}},
		{"Git has none", failing, at("Completed", v1alpha1.ReasonRolledBack, "v2", record, failed), []string{"v2: RolledBack "}},
		{"it comes afterwards", at("Completed", v1alpha1.ReasonRolledBack, "v2", record, failed), reverted, []string{
			"revert: ReleaseCompleted "}},
		{"it is replaced", failing, next, []string{
			"v2: RolledBack of-v2 was being rolled back to of-v1: no progress; of-v3 of commit v3 has come", "v3: ReleaseStarted "}},
		{"the Deployment is another one", failing, at("", v1alpha1.ReasonTakingHold, "", record), nil},
		{"so it is during a revert", reverting, at("", v1alpha1.ReasonTakingHold, "", record), nil},
	} {
		var got []string
		for _, n := range Of(&v1alpha1.BatchRelease{Status: tc.old}, tc.new, time.Unix(9, 0)) {
			got = append(got, n.Commit+": "+n.Reason+" "+n.Message)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.why, diff)
		}
	}
}

// An approval without a signature would be ignored where signers are listed.
func TestTransitions_SignedApprovals(t *testing.T) {
	br := &v1alpha1.BatchRelease{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	br.Spec.Commit, br.Spec.RequireSignedApprovals = "3f2c1e0000000000000000000000000000000000", true
	br.Status = v1alpha1.BatchReleaseStatus{Phase: "RollingUpdate", Reason: v1alpha1.ReasonUpgrading, UpdateRevision: "u", UpdateCommit: br.Spec.Commit}
	gate := br.Status
	gate.Reason = v1alpha1.ReasonWaitingForApproval
	got := Of(br, gate, time.Unix(9, 0))
	if len(got) != 1 || got[0].Next != "tranche approve web -n shop --sign --push" {
		t.Errorf("notified %+v", got)
	}
}

// A release goes on at once to what a status has begun. It does not from a new count, from a
// gate that is closed, to a hand-back, or from what has just failed.
func TestGoesOn(t *testing.T) {
	upgrading := v1alpha1.BatchReleaseStatus{
		Phase: v1alpha1.PhaseRollingUpdate, CurrentStepState: v1alpha1.StepUpgrade, Reason: v1alpha1.ReasonUpgrading, UpdateRevision: "u",
	}
	for name, tc := range map[string]struct {
		edit func(*v1alpha1.BatchReleaseStatus)
		want bool
	}{
		"a new count":   {func(s *v1alpha1.BatchReleaseStatus) { s.UpdatedReplicas++ }, false},
		"the next step": {func(s *v1alpha1.BatchReleaseStatus) { s.CurrentStepIndex++ }, true},
		"a closed gate": {func(s *v1alpha1.BatchReleaseStatus) {
			s.CurrentStepState, s.Reason = v1alpha1.StepBlocking, v1alpha1.ReasonWaitingForApproval
		}, false},
		"the end of the last step": {func(s *v1alpha1.BatchReleaseStatus) {
			s.Phase, s.Reason = v1alpha1.PhaseFinalizing, v1alpha1.ReasonHandingBack
		}, false},
		"a failure": {func(s *v1alpha1.BatchReleaseStatus) {
			s.Phase, s.Reason, s.FailedRevision, s.UpdateRevision = v1alpha1.PhaseInitial, v1alpha1.ReasonRollingBack, "u", "before"
		}, false},
	} {
		next := upgrading
		tc.edit(&next)
		if got := GoesOn(&upgrading, &next); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
