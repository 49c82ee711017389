package rollout

import (
	"time"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/notify"
)

// told are the reasons that people want to be told of, and what they mean for
// the commit.
var told = map[string]notify.State{
	engine.ReasonReleaseStarted:           notify.Pending,
	engine.ReasonWaitingForApproval:       notify.Pending,
	engine.ReasonWaitingForPause:          notify.Pending,
	engine.ReasonReleasePaused:            notify.Pending,
	engine.ReasonScaledToZero:             notify.Pending,
	engine.ReasonRollingBack:              notify.Pending,
	engine.ReasonReleaseCompleted:         notify.Succeeded,
	engine.ReasonRolledBack:               notify.Failed,
	engine.ReasonProgressDeadlineExceeded: notify.Failed,
	engine.ReasonInvalidPlan:              notify.Failed,
	engine.ReasonTemplateRefused:          notify.Failed,
	engine.ReasonHandBackRefused:          notify.Failed,
	engine.ReasonUnsupportedStrategy:      notify.Failed,
	engine.ReasonWriteRefused:             notify.Failed,
}

// transition returns what people are to be told of when a release's status
// becomes new, and whether that is anything.
func transition(br *v1alpha1.BatchRelease, new v1alpha1.BatchReleaseStatus, now time.Time) (notify.Transition, bool) {
	old, reason := br.Status, new.Reason
	begun := new.Phase == v1alpha1.PhaseInitial && (old.Phase != new.Phase || old.UpdateTemplateDigest != new.UpdateTemplateDigest || old.UpdateCommit != new.UpdateCommit)
	if begun && !new.RollingBack {
		reason = engine.ReasonReleaseStarted
	}
	state, ok := told[reason]
	same := !begun && old.Reason == new.Reason && old.CurrentStepIndex == new.CurrentStepIndex && old.RollingBack == new.RollingBack
	settled := new.Phase == v1alpha1.PhaseCompleted && (old.Phase == "" || old.Phase == new.Phase) && state == notify.Succeeded
	if !ok || same || settled || reason == engine.ReasonRollingBack && old.RollingBack {
		return notify.Transition{}, false
	}
	t := notify.Transition{
		Namespace: br.Namespace, Release: br.Name, Reason: reason, Message: new.Message, State: state,
		Revision: new.UpdateRevision, Commit: new.UpdateCommit, Step: new.CurrentStepIndex, Time: now,
		Rollback: new.RollingBack || old.RollingBack && new.Phase == v1alpha1.PhaseCompleted,
	}
	if t.Rollback && reason == engine.ReasonReleaseCompleted {
		t.Message = "rolled back: " + t.Message
	}
	if new.FailedCommit != "" && new.FailedRevision != "" {
		t.Commit = new.FailedCommit
	}
	return t, true
}
