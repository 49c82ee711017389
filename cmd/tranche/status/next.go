package status

import (
	"fmt"
	"path"
	"strings"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// next tells what moves the release on, as commands to copy; empty where
// nothing has to.
func (s *releaseView) next() string {
	br := s.release
	name := br.Name + " -n " + br.Namespace
	if br.DeletionTimestamp != nil {
		return ""
	}
	switch br.Status.Reason {
	case v1alpha1.ReasonWaitingForApproval, v1alpha1.ReasonWaitingForPause:
		head := fmt.Sprintf("It goes on when step %d is approved:", br.Status.CurrentStepIndex)
		if br.Status.Reason == v1alpha1.ReasonWaitingForPause {
			head = "It goes on by itself. To go on now, approve the step:"
		}
		if s.source == nil {
			return head + "\n  tranche approve " + name + " --direct\n"
		}
		return head + "\n  tranche approve " + name + s.signedApproval() + " --push\n" + s.inClone() + s.approvalByHand()
	case v1alpha1.ReasonReleasePaused:
		if s.source == nil {
			return "It goes on when spec.paused is false:\n  kubectl patch batchrelease " + name +
				" --type merge -p '{\"spec\":{\"paused\":false}}'\n"
		}
		return s.approvedAlready() + "It goes on when the plan is resumed:\n  tranche resume " + name + s.signedCommit() +
			" --push\n" + s.inClone() + s.byHand("set spec.paused of the plan to false, then", "Resume "+br.Name)
	case v1alpha1.ReasonProgressDeadlineExceeded:
		return "Look at the new pods, then push a better commit, or go back:\n  tranche rollback " + name + s.signedCommit() +
			" --push\n" + s.revertByHand(br.Spec.Commit)
	case v1alpha1.ReasonRolledBack:
		if br.Status.FailedCommit == "" {
			return ""
		}
		return s.takeBack(br.Status.FailedCommit)
	}
	return ""
}

// approvedAlready says that the approval of the step under way is there, and that only
// the pause keeps its gate closed.
func (s *releaseView) approvedAlready() string {
	a, at := s.release.Spec.Approval, &s.release.Status
	if a == nil || a.Commit != at.UpdateCommit || a.Revision != at.UpdateRevision || a.Step < at.CurrentStepIndex || at.RollingBack {
		return ""
	}
	return fmt.Sprintf("Step %d is approved already, by %s in %s.\n", a.Step, cli.OrNone(a.ApprovedBy), cli.OrNone(cli.Short(a.ApprovedIn)))
}

// signedApproval is the option to sign the commit of an approval, where it needs one.
func (s *releaseView) signedApproval() string {
	if s.release.Spec.RequireSignedApprovals || s.source != nil && cli.HasSigners(s.source) {
		return " --sign"
	}
	return s.signedCommit()
}

// signedCommit is the option to sign a commit, where the source applies no other.
func (s *releaseView) signedCommit() string {
	if s.source != nil && cli.VerifiesCommits(s.source) {
		return " --sign"
	}
	return ""
}

// git is the option of git commit and git revert for one of tranche.
func git(option string) string {
	if option == "" {
		return ""
	}
	return " -S"
}

// inClone introduces the same by hand.
func (s *releaseView) inClone() string {
	return "or, in a clone of " + s.source.Spec.URL + " on " + s.source.Spec.Ref.Branch + ":\n"
}

// approvalByHand is the approval as git commands.
func (s *releaseView) approvalByHand() string {
	br := s.release
	file := path.Join(cli.ApprovalsPath(&s.source.Spec), br.Name+".yaml")
	var b strings.Builder
	fmt.Fprintf(&b, "  mkdir -p %s && cat > %s <<'EOF'\n", path.Dir(file), file)
	b.WriteString(cli.ApprovalFile(br, br.Status.CurrentStepIndex))
	fmt.Fprintf(&b, "EOF\n  git add %s\n  git commit%s -m 'Approve step %d of %s'\n  git push origin HEAD:%s\n", file,
		git(s.signedApproval()), br.Status.CurrentStepIndex, br.Name, s.source.Spec.Ref.Branch)
	return b.String()
}

func (s *releaseView) byHand(edit, subject string) string {
	return fmt.Sprintf("  %s\n  git commit%s -am '%s' && git push origin HEAD:%s\n", edit, git(s.signedCommit()), subject,
		s.source.Spec.Ref.Branch)
}

// takeBack says how to revert a commit on the branch, without another way before it.
func (s *releaseView) takeBack(commit string) string {
	const head = "The branch may still bring what failed. Take it back there"
	if way := s.revertByHand(commit); way != "" {
		return head + strings.TrimPrefix(way, "or")
	}
	return head + ".\n"
}

func (s *releaseView) revertByHand(commit string) string {
	if s.source == nil || commit == "" {
		return ""
	}
	return s.inClone() + fmt.Sprintf("  git revert%s --no-edit %s && git push origin HEAD:%s\n", git(s.signedCommit()),
		cli.Short(commit), s.source.Spec.Ref.Branch)
}
