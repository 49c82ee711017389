package engine

import (
	"fmt"
	"slices"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// archiveCurrent records the release in the history when a new release or a rollback replaces it.
func archiveCurrent(d *draft) {
	if d.status.Phase == "" || d.status.Phase == v1alpha1.PhaseCompleted || d.status.UpdateRevision == "" { // or it was refused unnamed
		return
	}
	if d.status.RollingBack {
		d.spend()
		return
	}
	outcome := v1alpha1.OutcomeSuperseded
	if !d.forward() {
		outcome = v1alpha1.OutcomeRolledBack
	} else {
		d.event(v1alpha1.ReasonReleaseSuperseded, fmt.Sprintf("%s by %s", d.status.UpdateRevision, d.goal.name))
	}
	d.archive(outcome)
}

func (d *draft) archive(outcome v1alpha1.ReleaseOutcome) {
	record := v1alpha1.ReleaseRecord{
		Revision: d.status.UpdateRevision, Commit: d.status.UpdateCommit, Outcome: outcome,
		StartTime: d.status.StartTime, EndTime: *d.time(), Approvals: d.status.Approvals, Rollback: d.status.RollingBack,
	}
	d.spend()
	d.status.History = append([]v1alpha1.ReleaseRecord{record}, d.status.History...)
	if len(d.status.History) > keptReleases {
		d.status.History = d.status.History[:keptReleases]
	}
}

// spend notes that the release has ended: its approvals open no gate again (I5).
func (d *draft) spend() {
	if a := d.status.Approval; a != nil && approvesRelease(&d.position, &a.Approval) {
		a.Spent = true
	}
	ended := v1alpha1.ReleaseName{Revision: d.status.UpdateRevision, Commit: d.status.UpdateCommit}
	if ended.Commit == "" || slices.Contains(d.status.EndedReleases, ended) {
		return
	}
	d.status.EndedReleases = append([]v1alpha1.ReleaseName{ended}, d.status.EndedReleases...)
	d.status.EndedReleases = d.status.EndedReleases[:min(len(d.status.EndedReleases), keptEnded)]
}

// completeRelease records a release in the history once the Deployment is handed back, and
// reports what runs. A rollback to the revision that stayed stable is no release of its
// own.
func completeRelease(d *draft) {
	switch {
	case d.status.Phase == "" || d.status.Phase == v1alpha1.PhaseCompleted:
	case !d.isGoal():
		archiveCurrent(d)
	case d.status.RollingBack && d.status.StableRevision == d.status.UpdateRevision:
		d.spend()
		d.event(v1alpha1.ReasonRolledBack, "all pods run "+d.goal.name)
	case d.status.RollingBack:
		d.archive(v1alpha1.OutcomeCompleted)
		d.event(v1alpha1.ReasonRolledBack, "all pods run "+d.goal.name+" again")
	default:
		d.archive(v1alpha1.OutcomeCompleted)
		d.event(v1alpha1.ReasonReleaseCompleted, "all pods run "+d.goal.name)
	}
	if !d.failed() {
		d.clearFailed()
	}
	if d.status.Phase != v1alpha1.PhaseCompleted {
		d.status.Phase = v1alpha1.PhaseCompleted
		d.status.CurrentStepIndex = int32(len(d.spec.Strategy.Steps) - 1)
		d.setState(v1alpha1.StepCompleted)
	}
	d.status.CurrentStepReplicas, d.status.ProgressTime, d.status.StartTime = nil, nil, nil
	d.status.Approvals, d.status.RequestedApproval, d.status.BestAvailableReplicas, d.status.RollingBack = nil, nil, 0, false
	d.status.OpenedReplicas, d.status.BeganFull, d.status.CurrentStepTarget, d.status.CurrentStepLostSeconds = nil, false, 0, 0
	d.status.StableRevision, d.status.UpdateRevision = d.goal.name, d.goal.name
	d.status.UpdateTemplateDigest, d.status.UpdateCommit = d.goal.id, d.spec.Commit
	switch {
	case d.failed():
		d.stall(v1alpha1.ReasonRolledBack, fmt.Sprintf("%s was rolled back to %s; it is not tried again until another template or commit comes", d.status.FailedRevision, d.goal.name))
	case d.brought == nil:
		d.report(v1alpha1.ReasonTemplateMissing, "spec.template is empty: there is nothing to release")
	default:
		d.report(v1alpha1.ReasonReleaseCompleted, "all pods run "+d.goal.name)
	}
}
