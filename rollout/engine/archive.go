package engine

import (
	"fmt"
	"slices"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/gates"
	"github.com/tranche-dev/tranche/rollout/engine/position"
	"github.com/tranche-dev/tranche/rollout/engine/verdict"
)

// archiveCurrent records the release in the history when a new release or a rollback replaces it.
func archiveCurrent(d *draft) {
	if d.Status.Phase == "" || d.Status.Phase == v1alpha1.PhaseCompleted || d.Status.UpdateRevision == "" { // or it was refused unnamed
		return
	}
	if d.Status.RollingBack {
		d.spend()
		return
	}
	outcome := v1alpha1.OutcomeSuperseded
	switch {
	case position.HasEnded(&d.Position):
		outcome = v1alpha1.OutcomeCompleted
		d.event(v1alpha1.ReasonReleaseCompleted, "all pods run "+d.Status.UpdateRevision)
	case !d.Forward():
		outcome = v1alpha1.OutcomeRolledBack
	default:
		d.event(v1alpha1.ReasonReleaseSuperseded, fmt.Sprintf("%s by %s", d.Status.UpdateRevision, d.Goal.Name))
	}
	d.archive(outcome)
}

func (d *draft) archive(outcome v1alpha1.ReleaseOutcome) {
	position.TimeStep(&d.Status, d.Time(), false)
	record := v1alpha1.ReleaseRecord{
		Revision: d.Status.UpdateRevision, Commit: d.Status.UpdateCommit, Outcome: outcome,
		StartTime: d.Status.StartTime, EndTime: *d.Time(), Approvals: d.Status.Approvals, Rollback: d.Status.RollingBack,
		Analysis: verdict.History(d.Status.Analysis, d.Spec.Strategy.Analysis), StepTimes: d.Status.StepTimes,
	}
	d.spend()
	d.Status.History = append([]v1alpha1.ReleaseRecord{record}, d.Status.History...)
	d.Status.History = d.Status.History[:min(len(d.Status.History), keptReleases)]
}

// spend notes that the release has ended: its approvals open no gate again (I5).
func (d *draft) spend() {
	if a := d.Status.Approval; a != nil && gates.Approves(&d.Position, &a.Approval) {
		a.Spent = true
	}
	ended := v1alpha1.ReleaseName{Revision: d.Status.UpdateRevision, Commit: d.Status.UpdateCommit}
	if ended.Commit == "" || slices.Contains(d.Status.EndedReleases, ended) {
		return
	}
	d.Status.EndedReleases = append([]v1alpha1.ReleaseName{ended}, d.Status.EndedReleases...)
	d.Status.EndedReleases = d.Status.EndedReleases[:min(len(d.Status.EndedReleases), keptEnded)]
}

// completeRelease records a release in the history once the Deployment is handed back, and reports what
// runs. A rollback to the revision that stayed stable is no release of its own.
func completeRelease(d *draft) {
	switch {
	case d.Status.Phase == "" || d.Status.Phase == v1alpha1.PhaseCompleted:
	case !d.IsGoal():
		archiveCurrent(d)
	case d.Status.RollingBack && d.Status.StableRevision == d.Status.UpdateRevision:
		d.spend()
		d.event(v1alpha1.ReasonRolledBack, "all pods run "+d.Goal.Name)
	case d.Status.RollingBack:
		d.archive(v1alpha1.OutcomeCompleted)
		d.event(v1alpha1.ReasonRolledBack, "all pods run "+d.Goal.Name+" again")
	default:
		d.archive(v1alpha1.OutcomeCompleted)
		d.event(v1alpha1.ReasonReleaseCompleted, "all pods run "+d.Goal.Name)
	}
	if !d.Failed() {
		d.clearFailed()
	}
	if d.Status.Phase != v1alpha1.PhaseCompleted {
		d.Status.Phase = v1alpha1.PhaseCompleted
		d.Status.CurrentStepIndex = int32(len(d.Spec.Strategy.Steps) - 1)
		d.setState(v1alpha1.StepCompleted)
	}
	d.Status.CurrentStepReplicas, d.Status.ProgressTime, d.Status.StartTime, d.Status.Analysis, d.Status.StepTimes = nil, nil, nil, nil, nil
	d.Status.Approvals, d.Status.RequestedApproval, d.Status.BestAvailableReplicas, d.Status.RollingBack = nil, nil, 0, false
	d.Status.OpenedReplicas, d.Status.BeganFull, d.Status.CurrentStepTarget, d.Status.CurrentStepLostSeconds = nil, false, 0, 0
	d.Status.StableRevision, d.Status.UpdateRevision = d.Goal.Name, d.Goal.Name
	d.Status.UpdateTemplateDigest, d.Status.UpdateCommit = d.Goal.ID, d.Spec.Commit
	switch {
	case d.Failed():
		d.stall(v1alpha1.ReasonRolledBack, fmt.Sprintf("%s was rolled back to %s%s; it is not tried again until another template "+
			"or commit comes", d.Status.FailedRevision, d.Goal.Name, d.Status.FailedCause()))
	case d.Brought == nil:
		d.report(v1alpha1.ReasonTemplateMissing, "spec.template is empty: there is nothing to release")
	default:
		d.report(v1alpha1.ReasonReleaseCompleted, "all pods run "+d.Goal.Name)
	}
}
