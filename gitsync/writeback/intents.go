package writeback

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/revert"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/measure"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// intent is a decision made in the cluster that Git does not say yet: an
// approval that was given there, or a rollback.
type intent struct {
	release *plan.Release          // as the branch has it
	live    *v1alpha1.BatchRelease // as the cluster has it
	// revision and commit name the release that was approved or rolled back.
	revision, commit string
	// rollback: the cluster has gone back, or is on its way.
	rollback bool
	// step up to which the release was let go on; only without rollback.
	step int32
	// waits: the gate has not opened yet, and the approval is for the steps that the
	// plan has now. The steps that a gate opened for do not count any more.
	waits bool
	// stable is what the cluster went back to, and why; only with rollback.
	stable, why string
	// evidence is what was measured of the release; only with rollback.
	evidence []v1alpha1.MetricRecord
}

// intents returns what the cluster decided of the branch's releases, in the order
// of the releases: rollbacks of what the branch still brings, and approvals. Whether
// the branch has an approval, or had it, is asked of its history.
func intents(set *plan.Set, live map[string]*v1alpha1.BatchRelease) []intent {
	var list []intent
	for i := range set.Releases {
		r := &set.Releases[i]
		br := live[plan.ReleaseName(r.Plan)]
		if br == nil || !speaksOf(br, r) {
			continue
		}
		if in, ok := rolledBack(r, br); ok {
			list = append(list, in)
		} else if in, ok := approved(r, br); ok {
			list = append(list, in)
		}
	}
	return list
}

// speaksOf reports whether a status is about what the branch says now.
func speaksOf(br *v1alpha1.BatchRelease, r *plan.Release) bool {
	return br.Status.ObservedGeneration == br.Generation && br.Spec.Commit != "" && plan.EqualTemplate(br.Spec.Template, r.Template)
}

// rolledBack is about a revision that the branch still brings. On the way
// back it counts as soon as the Deployment has the stable template again.
func rolledBack(r *plan.Release, br *v1alpha1.BatchRelease) (intent, bool) {
	s := &br.Status
	if s.FailedRevision == "" || s.FailedCommit != br.Spec.Commit || s.Phase == v1alpha1.PhaseInitial {
		return intent{}, false
	}
	return intent{release: r, live: br, rollback: true, revision: s.FailedRevision, commit: s.FailedCommit,
		stable: s.UpdateRevision, why: s.FailedMessage, evidence: measured(s)}, true
}

// measured returns what was measured of the revision that was rolled back.
func measured(s *v1alpha1.BatchReleaseStatus) []v1alpha1.MetricRecord {
	i := slices.IndexFunc(s.History, func(r v1alpha1.ReleaseRecord) bool {
		return r.Revision == s.FailedRevision && r.Commit == s.FailedCommit && r.Outcome == v1alpha1.OutcomeRolledBack
	})
	if i < 0 {
		return nil
	}
	return s.History[i].Analysis
}

// approved is about the release under way, or the one that has just come to its end.
// Only then the approval of its last gate may be seen. An approval counts for the steps that
// the plan had in the cluster. The commit would be one for those that the branch has by now.
func approved(r *plan.Release, br *v1alpha1.BatchRelease) (intent, bool) {
	s := &br.Status
	in := intent{release: r, live: br, revision: s.UpdateRevision, commit: s.UpdateCommit, step: -1}
	given := s.Approvals
	if s.Phase == v1alpha1.PhaseCompleted && len(s.History) > 0 && s.History[0].Outcome == v1alpha1.OutcomeCompleted {
		in.revision, in.commit, given = s.History[0].Revision, s.History[0].Commit, s.History[0].Approvals
	}
	if s.RollingBack || in.commit != br.Spec.Commit {
		return intent{}, false
	}
	for _, a := range given {
		if a.By == v1alpha1.ApprovedByCluster && sameSteps(r, br, a.Step, a.Steps) {
			in.step = max(in.step, a.Step)
		}
	}
	if a := s.RequestedApproval; a != nil && s.Phase != v1alpha1.PhaseCompleted {
		in.step, in.waits = a.Step, true // no gate after that one is open, whatever was approved before an edit
		if !sameSteps(r, br, a.Step, nil) {
			return intent{}, false
		}
	}
	return in, in.step >= 0
}

// sameSteps reports whether the branch has the steps that were approved in the cluster. If
// those are not known, they are the ones of the status.
func sameSteps(r *plan.Release, br *v1alpha1.BatchRelease, step int32, approved []intstr.IntOrString) bool {
	if len(approved) == 0 {
		approved = br.Status.Steps
	}
	return plan.ChangedStep(approved, step, r.Plan.Spec.Strategy.Steps) < 0
}

// covers reports whether an approval in Git is for the release of the intent, and
// for its step.
func (in intent) covers(a *plan.Approval) bool {
	return a != nil && a.Spec.Revision == in.revision && a.Spec.Step >= in.step
}

// isOf reports whether an approval of these steps lets the release go on as far as
// the intent does.
func (in intent) isOf(steps []intstr.IntOrString) bool {
	return !in.waits || plan.ChangedStep(steps, in.step, in.release.Plan.Spec.Strategy.Steps) < 0
}

// says reports whether a commit message is of a commit that said the intent.
func (in intent) says(message string) bool {
	t := gitobject.Trailers(message)
	if !slices.Contains(t[gitobject.TrailerRelease], plan.ReleaseName(in.release.Plan)) ||
		!slices.Contains(t[gitobject.TrailerRevision], in.revision) || !slices.Contains(t[gitobject.TrailerCommit], in.commit) {
		return false
	}
	if in.rollback {
		return len(t[gitobject.TrailerStep]) == 0
	}
	return slices.ContainsFunc(t[gitobject.TrailerStep], func(s string) bool {
		var step int32
		_, err := fmt.Sscanf(s, "%d", &step)
		return err == nil && step >= in.step
	})
}

// problem says what the cluster has and Git has not, for a branch to which
// nothing is written back.
func (in intent) problem(tip, file string) *plan.Problem {
	where := in.release.String()
	if in.rollback {
		return &plan.Problem{
			Reason: v1alpha1.ReasonRolledBackInCluster, Where: where,
			Err: fmt.Errorf("the cluster went back from %s to %s, and %s still says %s (commit %s)", in.revision, in.stable, tip,
				in.revision, plan.ShortCommit(in.commit)),
			Hint: "git revert the change, or commit a better one",
		}
	}
	return &plan.Problem{
		Reason: v1alpha1.ReasonApprovedInCluster, Where: where,
		Err: fmt.Errorf("step %d of %s (commit %s) was approved in the cluster, and %s does not say so", in.step, in.revision,
			plan.ShortCommit(in.commit), tip),
		Hint: "commit the approval to " + file,
	}
}

// subject and body are what git log says of an approval.
func (in intent) message() string {
	name := plan.ReleaseName(in.release.Plan)
	return fmt.Sprintf(`Approve step %d of %s

Given in the cluster, for revision %s of commit %s.

%s: %s
%s: %s
%s: %s
%s: %d
`, in.step, in.release.Plan.Name, in.revision, plan.ShortCommit(in.commit),
		gitobject.TrailerRelease, name, gitobject.TrailerRevision, in.revision, gitobject.TrailerCommit, in.commit,
		gitobject.TrailerStep, in.step)
}

// revertMessage is what git log says of a revert of some releases. The
// commits are newest first; a merge has the parent that it goes back to.
func revertMessage(list []intent, reverted []revert.Commit) string {
	var b strings.Builder
	if len(reverted) == 1 {
		fmt.Fprintf(&b, "Revert \"%s\"\n\n", reverted[0].Subject)
	} else {
		names := make([]string, len(list))
		for i, in := range list {
			names[i] = in.release.Plan.Name
		}
		fmt.Fprintf(&b, "Revert %s to %s\n\n", strings.Join(names, ", "), list[0].stable)
	}
	for _, c := range reverted {
		if len(c.Only) > 0 {
			fmt.Fprintf(&b, "This reverts commit %s, but only in\n%s.\n", c.Hash, strings.Join(c.Only, ", "))
		} else if c.Merge {
			fmt.Fprintf(&b, "This reverts commit %s, reversing\nchanges made to %s.\n", c.Hash, c.Parent)
		} else {
			fmt.Fprintf(&b, "This reverts commit %s.\n", c.Hash)
		}
	}
	b.WriteString("\n")
	for _, in := range list {
		fmt.Fprintf(&b, "The cluster took BatchRelease %s back from %s to %s", plan.ReleaseName(in.release.Plan), in.revision, in.stable)
		if in.why != "" {
			b.WriteString(": " + plan.OneLine(in.why))
		}
		b.WriteString(".\n")
		if table := measure.EvidenceTable(in.evidence); table != "" {
			b.WriteString("\n" + table)
		}
	}
	b.WriteString("\n")
	for _, in := range list {
		fmt.Fprintf(&b, "%s: %s\n%s: %s\n%s: %s\n", gitobject.TrailerRelease, plan.ReleaseName(in.release.Plan),
			gitobject.TrailerRevision, in.revision, gitobject.TrailerCommit, in.commit)
		for i := range in.evidence {
			fmt.Fprintf(&b, "%s: %s\n", gitobject.TrailerAnalysis, measure.Evidence(&in.evidence[i]))
		}
	}
	return b.String()
}

// Mark changes when a status says something else that a source has to know.
func Mark(br *v1alpha1.BatchRelease) string {
	s := &br.Status
	release := plan.Release{Plan: br}
	back, failed := rolledBack(&release, br)
	in, ok := approved(&release, br)
	a := br.Spec.Approval
	other := a != nil && desired.Releasing(br, a.Commit) != "" && desired.Releasing(br, a.Commit) != a.Revision
	past := a != nil && desired.IsPast(br, a.Step)
	var about int64 // what was decided counts once it is about the present spec
	if failed || ok {
		about = s.ObservedGeneration
	}
	return fmt.Sprint(about, failed, back.revision, back.commit, ok, in.revision, in.commit, in.step, in.waits, s.FailedRevision,
		other, past, desired.IsUnderWay(br, s.UpdateCommit))
}

// String is an intent in a few words.
func (in intent) String() string {
	if in.rollback {
		return fmt.Sprintf("rollback of %s to %s", plan.ReleaseName(in.release.Plan), in.stable)
	}
	return fmt.Sprintf("approval of step %d of %s", in.step, plan.ReleaseName(in.release.Plan))
}
