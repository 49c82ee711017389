// Package refusal says why a decision about a release is not possible, as far as the objects of
// the cluster tell. The command line and the dashboard refuse by it, in the same words.
package refusal

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// OfBranch refuses a decision that no commit to the branch of the source brings.
func OfBranch(br *v1alpha1.BatchRelease, gs *v1alpha1.GitSource, approval bool) error {
	switch {
	case br.DeletionTimestamp != nil:
		return fmt.Errorf("it is %s", cli.DeletionOf(br))
	case gs == nil || br.Spec.Commit == "":
		return errors.New("it comes from no commit")
	case approval && gs.Status.HasEnded(br.Namespace+"/"+br.Spec.WorkloadRef.Name, br.Spec.Commit):
		return errors.New("this release has ended before; bring its change by a new commit")
	case !approval && gs.Spec.Ref.IsPinned():
		return fmt.Errorf("the source pins %s, so a commit to %s changes nothing", cli.PinOf(gs.Spec.Ref), gs.Spec.Ref.Branch)
	}
	return nil
}

// Step is the step to approve.
type Step struct {
	// Index counts if it is given. The default is the present step.
	Index int32
	Given bool
	// All is the last step.
	All bool
	// Direct is true for an approval in the cluster.
	Direct bool
}

// Of returns the index of the step, checked against the release under way.
func (s Step) Of(br *v1alpha1.BatchRelease) (int32, error) {
	at := &br.Status
	name, last := br.Namespace+"/"+br.Name, int32(len(br.Spec.Strategy.Steps))-1
	step := at.CurrentStepIndex
	switch {
	case s.All:
		step = last
	case s.Given:
		step = s.Index
	}
	switch {
	case br.DeletionTimestamp != nil:
		return 0, fmt.Errorf("%s is %s; it has no gate to approve", name, cli.DeletionOf(br))
	case at.ObservedGeneration != br.Generation:
		return 0, fmt.Errorf("the status of %s is not about its present spec yet; try again in a moment", name)
	case at.RollingBack:
		return 0, fmt.Errorf("%s is rolling back, which needs no approval", name)
	case at.Phase == v1alpha1.PhaseCompleted || at.Phase == "" || at.UpdateRevision == "":
		return 0, fmt.Errorf("%s has no release under way: %s", name, cli.OrNone(at.Reason))
	case at.Phase == v1alpha1.PhaseFinalizing:
		return 0, fmt.Errorf("all gates of %s are open: %s", name, cli.OrNone(at.Message))
	case !s.Direct && at.HasEndedBefore():
		return 0, fmt.Errorf("the release of %s in commit %s has ended before, and no approval in Git counts for it; bring the change of %s by "+
			"a new commit", at.UpdateRevision, cli.Short(at.UpdateCommit), name)
	case step < 0 || step > last:
		return 0, fmt.Errorf("--step %d: the plan has the steps 0 to %d", step, last)
	case step < at.CurrentStepIndex:
		return 0, fmt.Errorf("--step %d: is over, the release is at step %d", step, at.CurrentStepIndex)
	}
	return step, byMetrics(br, step)
}

// byMetrics refuses an approval, up to a step, all of whose gates are opened by their metrics
// alone. A plain approval does not override those. It opens a gate before the present step,
// which an edit has raised: the release then waits for an approval.
func byMetrics(br *v1alpha1.BatchRelease, step int32) error {
	strategy := &br.Spec.Strategy
	if a := strategy.Analysis; a == nil || a.Mode == v1alpha1.AnalysisObserve || br.Status.Reason == v1alpha1.ReasonWaitingForApproval {
		return nil
	}
	for i := max(br.Status.CurrentStepIndex, 0); i <= step && int(i) < len(strategy.Steps); i++ {
		if a := strategy.Steps[i].Analysis; a == nil || a.Approval {
			return nil
		}
	}
	return errors.New("its metrics open this gate; only an approval with spec.override lets it open without them")
}

// Reject refuses to reject what is not under way.
func Reject(br *v1alpha1.BatchRelease) error {
	name := br.Namespace + "/" + br.Name
	switch at := &br.Status; {
	case br.DeletionTimestamp != nil:
		return fmt.Errorf("%s is %s; it has no release under way", name, cli.DeletionOf(br))
	case at.ObservedGeneration != br.Generation:
		return fmt.Errorf("the status of %s is not about its present spec yet; try again in a moment", name)
	case at.RollingBack && at.Phase != v1alpha1.PhaseCompleted:
		return fmt.Errorf("%s is rolling back already", name)
	case at.Phase == v1alpha1.PhaseCompleted || at.Phase == "":
		return fmt.Errorf("%s has no release under way: %s; to take back the last one, tranche rollback %s", name, cli.OrNone(at.Reason), br.Name)
	}
	return nil
}

// maxRejected is how many characters a reason may have: it is part of a notification.
const maxRejected = 500

// Reason returns the reason of a rejection as one line.
func Reason(reason string) (string, error) {
	reason = gitobject.Printable(strings.Join(strings.Fields(reason), " "))
	switch n := len([]rune(reason)); {
	case n == 0:
		return "", errors.New("--reason is missing: write in a sentence why the release is rejected")
	case n > maxRejected:
		return "", fmt.Errorf("--reason has %d characters; at most %d are possible", n, maxRejected)
	}
	return reason, nil
}

// Rollback refuses a way back from a release that has none.
func Rollback(br *v1alpha1.BatchRelease) error {
	switch {
	case br.Status.RollingBack && !isOver(br):
		return errors.New("it is rolling back already")
	case IsTakenBack(br):
		return errors.New("Git has taken back the last release already")
	case isOver(br) && len(br.Status.History) == 0:
		return errors.New("there is no release to go back from")
	}
	return nil
}

// Pause refuses to set spec.paused to what it is, and to pause without a release.
func Pause(br *v1alpha1.BatchRelease, pause bool) error {
	switch {
	case br.Spec.Paused == pause:
		return fmt.Errorf("spec.paused is %t already", pause)
	case pause && isOver(br):
		return errors.New("there is no release under way")
	}
	return nil
}

func isOver(br *v1alpha1.BatchRelease) bool {
	return br.Status.Phase == "" || br.Status.Phase == v1alpha1.PhaseCompleted
}

// IsTakenBack reports whether Git has taken back the last release, or is about to. A
// revert of its commit would bring the release again. If the cluster went back by itself,
// the branch still has what failed.
func IsTakenBack(br *v1alpha1.BatchRelease) bool {
	at := &br.Status
	switch {
	case at.FailedRevision != "":
		return false
	case at.RollingBack:
		return true
	case at.Phase != v1alpha1.PhaseCompleted || len(at.History) == 0:
		return false
	}
	last := at.History[0]
	return last.Rollback || last.Outcome == v1alpha1.OutcomeRolledBack && last.Commit != br.Spec.Commit
}
