package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
	"github.com/tranche-dev/tranche/rollout/engine/position"
)

// settleIdle says that nothing moves. A release that was handed back just before a
// crash is completed here; drift in strategy and paused is undone.
func settleIdle(d *draft) {
	if d.IsNativeDrift() {
		d.warn(v1alpha1.ReasonDriftCorrected, "strategy or paused of the Deployment were not what the manifest says")
		d.handBack("strategy or paused were changed by another field manager", nil)
	}
	if d.Brought == nil { // spec.template is empty: what runs is stable
		if d.RollingNatively() && !d.Stable.Equal(&d.Deployment.Spec.Template) {
			awaitNative(d)
			return
		}
		runs := facts.RevisionOf(d.Observed, &d.Deployment.Spec.Template)
		runs.ID = "" // it was not sent
		d.Course = d.To(runs)
		rememberGoal(d)
	} else if d.Goal == d.Stable {
		renewStable(d)
	}
	for _, r := range slices.Concat(d.ReleasingRecords, d.OutdatedRecords) {
		d.do(Forget{Why: "it is not being released any more", Record: r})
	}
	completeRelease(d)
	if n := d.Replaced(); n > 0 && d.Status.Reason == v1alpha1.ReasonReleaseCompleted {
		d.unreleased = true
		d.report(v1alpha1.ReasonNativeRollout, fmt.Sprintf("the native controller is replacing %d pods that do not run %s", n, d.Goal.Name))
	}
	watchPods(d)
}

// renewStable brings the record of the stable revision up to date. Git may say otherwise what is the
// same to the API server. And admission, or a new default, may have changed the template of the
// Deployment. That is recorded in place of the old one: if the policy goes, nothing is to be released.
func renewStable(d *draft) {
	old := d.Stable.Record
	record := *old
	if d.Brought == d.Stable && d.Spec.Template != nil {
		record.Sent = plan.TemplateDigest(d.Spec.Template)
	}
	switch {
	case old.Kept != nil:
		record.Name, record.ResourceVersion, record.Kept = "", "", nil
		record.Order = d.newest() + 1
		d.do(Remember{Why: "the API server makes another template of it", Record: record})
		d.do(Forget{Why: "its template is another one today", Record: *old})
	case record.Sent != old.Sent:
		d.do(Remember{Why: "spec.template says the same otherwise", Record: record, Exists: true})
	}
}

// watchPods says so where pods of a completed release are missing. After a rollback that is a part
// of the message: the commit that failed still waits for a person.
func watchPods(d *draft) {
	switch missing := position.Missing(&d.Course); {
	case missing == "":
	case d.Status.Reason == v1alpha1.ReasonReleaseCompleted:
		d.unreleased, d.unready = true, true
		d.report(v1alpha1.ReasonPodsUnavailable, missing)
	case d.Status.Reason == v1alpha1.ReasonRolledBack:
		d.unready = true
		if !strings.Contains(d.Release.Status.Message, butNow) {
			d.warn(v1alpha1.ReasonPodsUnavailable, missing)
		}
		d.stall(v1alpha1.ReasonRolledBack, d.Status.Message+butNow+missing)
	}
}

const butNow = ". But now "

// standStill makes the status one of the release that spec brings, and moves nothing. One that
// has not begun, and that spec does not bring any more, ends.
func standStill(d *draft) {
	switch {
	case d.UnderWay():
	case d.Forward():
		beginRelease(d)
	case position.Releasing(&d.Status) && d.Idle():
		completeRelease(d)
	}
}
