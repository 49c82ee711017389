// Package transition finds in two statuses of a release what notifications are sent of.
package transition

import (
	"fmt"
	"strings"
	"time"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/notify"
)

// notified are the reasons that notifications are sent of, and what they mean for the
// commit.
var notified = map[string]notify.State{
	v1alpha1.ReasonReleaseStarted:           notify.Pending,
	v1alpha1.ReasonStepApproved:             notify.Pending,
	v1alpha1.ReasonReleaseSuperseded:        notify.Failed,
	v1alpha1.ReasonWaitingForApproval:       notify.Pending,
	v1alpha1.ReasonWaitingForPause:          notify.Pending,
	v1alpha1.ReasonWaitingForAnalysis:       notify.Pending,
	v1alpha1.ReasonAnalysisFailed:           notify.Failed,
	v1alpha1.ReasonAnalysisUnknown:          notify.Failed,
	v1alpha1.ReasonReleasePaused:            notify.Pending,
	v1alpha1.ReasonScaledToZero:             notify.Pending,
	v1alpha1.ReasonRollingBack:              notify.Pending,
	v1alpha1.ReasonReleaseCompleted:         notify.Succeeded,
	v1alpha1.ReasonRolledBack:               notify.Failed,
	v1alpha1.ReasonProgressDeadlineExceeded: notify.Failed,
	v1alpha1.ReasonInvalidPlan:              notify.Failed,
	v1alpha1.ReasonTemplateRefused:          notify.Failed,
	v1alpha1.ReasonHandBackRefused:          notify.Failed,
	v1alpha1.ReasonUnsupportedStrategy:      notify.Failed,
	v1alpha1.ReasonWriteRefused:             notify.Failed,
}

// Moved reports whether a status says more than a new count.
func Moved(old, new *v1alpha1.BatchReleaseStatus) bool {
	return old.Phase != new.Phase || old.CurrentStepIndex != new.CurrentStepIndex ||
		old.CurrentStepState != new.CurrentStepState || old.Reason != new.Reason || old.UpdateRevision != new.UpdateRevision
}

// GoesOn reports whether a release goes on at once when its status becomes new. It goes on to
// its hold, or to the sizes of a step. One that has just failed is recorded first.
func GoesOn(old, new *v1alpha1.BatchReleaseStatus) bool {
	switch new.Reason {
	case v1alpha1.ReasonTakingHold, v1alpha1.ReasonUpgrading, v1alpha1.ReasonRollingBack:
		return Moved(old, new) && new.FailedRevision == old.FailedRevision
	}
	return false
}

// Of returns the transitions to notify of when a release's status becomes new, in the
// order in which they happened.
func Of(br *v1alpha1.BatchRelease, new v1alpha1.BatchReleaseStatus, now time.Time) []notify.Transition {
	var list []notify.Transition
	finders := []func(*v1alpha1.BatchRelease, v1alpha1.BatchReleaseStatus, time.Time) (notify.Transition, bool){
		superseded, rolledBack, approved, changed,
	}
	for _, find := range finders {
		if t, ok := find(br, new, now); ok {
			list = append(list, described(br, t))
		}
	}
	return list
}

// superseded is the end of a release, or of a rollback that Git has brought, in whose place
// another one begins. A revert in the middle of a release is such a rollback.
func superseded(br *v1alpha1.BatchRelease, new v1alpha1.BatchReleaseStatus, now time.Time) (notify.Transition, bool) {
	revision, commit, ok := replaced(&br.Status, &new)
	return notify.Transition{
		Namespace: br.Namespace, Release: br.Name, Reason: v1alpha1.ReasonReleaseSuperseded,
		Message: revision + " by " + new.UpdateRevision + fromCommit(new.UpdateCommit), State: notified[v1alpha1.ReasonReleaseSuperseded],
		Revision: revision, Commit: commit, Step: br.Status.CurrentStepIndex, Time: now, Rollback: new.RollingBack,
	}, ok
}

// replaced returns what the new status has replaced. A release has a record then. A rollback
// that Git has brought has none. A release that has failed is notified of by [rolledBack].
func replaced(old, new *v1alpha1.BatchReleaseStatus) (revision, commit string, ok bool) {
	if old.RollingBack {
		return old.UpdateRevision, old.UpdateCommit, old.FailedRevision == "" && old.UpdateCommit != new.UpdateCommit && new.Phase != ""
	}
	if len(new.History) == 0 {
		return "", "", false
	}
	r := new.History[0]
	isKnown := len(old.History) > 0 && old.History[0].EndTime.Equal(&r.EndTime) && old.History[0].Revision == r.Revision &&
		old.History[0].Commit == r.Commit
	hasFailed := r.Outcome == v1alpha1.OutcomeRolledBack && new.FailedRevision != ""
	return r.Revision, r.Commit, !isKnown && !hasFailed && r.Outcome != v1alpha1.OutcomeCompleted
}

// rolledBack is the end of a rollback during which Git has brought a revert or another release.
// The new status says nothing of the failure any more.
func rolledBack(br *v1alpha1.BatchRelease, new v1alpha1.BatchReleaseStatus, now time.Time) (notify.Transition, bool) {
	old := &br.Status
	message := old.FailedRevision + " was rolled back to " + old.UpdateRevision + old.FailedCause()
	if new.Phase != v1alpha1.PhaseCompleted {
		message = fmt.Sprintf("%s was being rolled back to %s%s; %s%s has come", old.FailedRevision, old.UpdateRevision,
			old.FailedCause(), new.UpdateRevision, fromCommit(new.UpdateCommit))
	}
	return notify.Transition{
		Namespace: br.Namespace, Release: br.Name, Reason: v1alpha1.ReasonRolledBack, Message: message,
		State: notified[v1alpha1.ReasonRolledBack], Revision: old.UpdateRevision, Commit: old.FailedCommit, Step: old.CurrentStepIndex,
		Time: now, Rollback: true,
	}, old.RollingBack && old.FailedRevision != "" && new.FailedRevision == "" && new.Phase != ""
}

func fromCommit(commit string) string {
	if commit == "" {
		return ""
	}
	return " of commit " + commit[:min(len(commit), 12)]
}

// approved is the opening of a gate by a user.
func approved(br *v1alpha1.BatchRelease, new v1alpha1.BatchReleaseStatus, now time.Time) (notify.Transition, bool) {
	old, n := br.Status, len(new.Approvals)
	if n == 0 || new.UpdateRevision != old.UpdateRevision || new.UpdateCommit != old.UpdateCommit {
		return notify.Transition{}, false
	}
	a := new.Approvals[n-1]
	if n <= len(old.Approvals) { // an older one may have made room for it
		if last := old.Approvals[len(old.Approvals)-1]; a.Step == last.Step && a.Time.Equal(&last.Time) && a.Commit == last.Commit {
			return notify.Transition{}, false
		}
	}
	message := fmt.Sprintf("step %d by %s", a.Step, a.By)
	if a.By == v1alpha1.ApprovedByCluster {
		message = fmt.Sprintf("step %d in the cluster", a.Step)
	}
	return notify.Transition{
		Namespace: br.Namespace, Release: br.Name, Reason: v1alpha1.ReasonStepApproved, Message: message + fromCommit(a.Commit),
		State: notified[v1alpha1.ReasonStepApproved], Revision: new.UpdateRevision, Commit: new.UpdateCommit, Step: a.Step, Time: now,
	}, true
}

// described adds what the GitSource says of the commit, and the command that moves on.
func described(br *v1alpha1.BatchRelease, t notify.Transition) notify.Transition {
	about := br.Annotations
	if link := about[v1alpha1.AnnotationCommitURL]; t.Commit != "" && br.Spec.Commit != "" && strings.HasSuffix(link, br.Spec.Commit) {
		t.Link = strings.TrimSuffix(link, br.Spec.Commit) + t.Commit
	}
	if t.Commit == br.Spec.Commit {
		t.Author = about[v1alpha1.AnnotationCommitAuthor]
	}
	if why := about[v1alpha1.AnnotationRejected]; why != "" && t.Rollback {
		t.Message += "; rejected"
		if by := about[v1alpha1.AnnotationCommitAuthor]; by != "" {
			t.Message += " by " + by
		}
		t.Message += ": " + why
	}
	name := " " + br.Name + " -n " + br.Namespace
	git, push := br.Spec.Commit != "", " --push"
	if !git {
		push = " --direct"
	}
	switch t.Reason {
	case v1alpha1.ReasonWaitingForApproval:
		if br.Spec.RequireSignedApprovals {
			name += " --sign"
		}
		t.Next = "tranche approve" + name + push
	case v1alpha1.ReasonProgressDeadlineExceeded, v1alpha1.ReasonAnalysisFailed, v1alpha1.ReasonAnalysisUnknown:
		t.Next = "tranche rollback" + name + push
	case v1alpha1.ReasonReleasePaused:
		if git {
			t.Next = "tranche resume" + name + push
		}
	}
	return t
}

// begins reports whether a release begins with the new status.
func begins(old, new *v1alpha1.BatchReleaseStatus) bool {
	return new.Phase == v1alpha1.PhaseInitial &&
		(old.Phase != new.Phase || old.UpdateTemplateDigest != new.UpdateTemplateDigest || old.UpdateCommit != new.UpdateCommit)
}

// reasonOf returns the reason to notify of. A release that was refused has not begun: it
// starts when it is refused no more.
func reasonOf(old, new *v1alpha1.BatchReleaseStatus) string {
	wasRefused := old.Phase == new.Phase && notified[old.Reason] == notify.Failed
	if new.Phase == v1alpha1.PhaseInitial && new.Reason == v1alpha1.ReasonTakingHold && (begins(old, new) || wasRefused) {
		return v1alpha1.ReasonReleaseStarted
	}
	return new.Reason
}

// isSame reports whether two statuses say the same of the same step.
func isSame(old, new *v1alpha1.BatchReleaseStatus) bool {
	return !begins(old, new) && old.Reason == new.Reason && old.CurrentStepIndex == new.CurrentStepIndex && old.RollingBack == new.RollingBack
}

// isSettled reports whether a release that had ended well, or was never seen, is well. One that
// was rolled back had not ended well: the commit that reverts it is another success.
func isSettled(old, new *v1alpha1.BatchReleaseStatus, state notify.State) bool {
	endedWell := old.Phase == "" || old.Phase == new.Phase && notified[old.Reason] != notify.Failed
	return new.Phase == v1alpha1.PhaseCompleted && endedWell && state == notify.Succeeded
}

// changed returns the transition to notify of when a release's status becomes new, and
// whether there is one.
func changed(br *v1alpha1.BatchRelease, new v1alpha1.BatchReleaseStatus, now time.Time) (notify.Transition, bool) {
	old, reason := &br.Status, reasonOf(&br.Status, &new)
	state, ok := notified[reason]
	if !ok || isSame(old, &new) || isSettled(old, &new, state) || reason == v1alpha1.ReasonRollingBack && old.RollingBack {
		return notify.Transition{}, false
	}
	t := notify.Transition{
		Namespace: br.Namespace, Release: br.Name, Reason: reason, Message: new.Message, State: state,
		Revision: new.UpdateRevision, Commit: new.UpdateCommit, Step: new.CurrentStepIndex, Time: now,
		Rollback: new.RollingBack || old.RollingBack && new.Phase == v1alpha1.PhaseCompleted,
	}
	if t.Rollback && reason == v1alpha1.ReasonReleaseCompleted {
		t.Message = "rolled back: " + t.Message
	}
	if reason == v1alpha1.ReasonRollingBack {
		t.Message += new.FailedCause()
	}
	if new.FailedCommit != "" && new.FailedRevision != "" {
		t.Commit = new.FailedCommit
	}
	return t, true
}
