package view

import (
	"fmt"
	"path"
	"strings"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Next is how a release is moved on.
type Next struct {
	// Head says what the commands below do; empty: nothing has to be done.
	Head string `json:"head,omitempty"`
	// Command is a command to copy; empty: there is none.
	Command string `json:"command,omitempty"`
	// ByHand has the same as commands of git.
	ByHand string `json:"byHand,omitempty"`
}

// Text returns it as the command line prints it.
func (n Next) Text() string {
	text := n.Head
	if n.Command != "" {
		text += "\n  " + n.Command
	}
	if text == "" {
		return ""
	}
	return text + "\n" + n.ByHand
}

// Next returns how the release is moved on.
func (s *Facts) Next() Next {
	br := s.Release
	name := br.Name + " -n " + br.Namespace
	if br.DeletionTimestamp != nil {
		return Next{}
	}
	switch br.Status.Reason {
	case v1alpha1.ReasonWaitingForApproval, v1alpha1.ReasonWaitingForPause:
		if br.Status.HasEndedBefore() {
			return Next{"It has ended before, so no approval in Git opens its gates. Bring its change by a new commit.", "", ""}
		}
		head := fmt.Sprintf("It goes on when step %d is approved:", br.Status.CurrentStepIndex)
		if br.Status.Reason == v1alpha1.ReasonWaitingForPause {
			head = "It goes on by itself. To go on now, approve the step:"
		}
		if s.Source == nil {
			return Next{head, "tranche approve " + name + " --direct", ""}
		}
		return Next{head, "tranche approve " + name + s.signedApproval() + " --push", s.inClone() + s.approvalByHand()}
	case v1alpha1.ReasonReleasePaused:
		if s.Source == nil {
			return Next{"It goes on when spec.paused is false:",
				"kubectl patch batchrelease " + name + " --type merge -p '{\"spec\":{\"paused\":false}}'", ""}
		}
		return Next{s.approvedAlready() + "It goes on when the plan is resumed:", "tranche resume " + name + s.signedCommit() + " --push",
			s.inClone() + s.byHand("set spec.paused of the plan to false, then", "Resume "+br.Name)}
	case v1alpha1.ReasonProgressDeadlineExceeded:
		return Next{"Look at the new pods, then push a better commit, or go back:", "tranche rollback " + name + s.signedCommit() + " --push",
			s.revertByHand(br.Spec.Commit)}
	case v1alpha1.ReasonAnalysisFailed, v1alpha1.ReasonAnalysisUnknown:
		return Next{"Override the metrics by an approval with spec.override, push a better commit, or go back:",
			"tranche rollback " + name + s.signedCommit() + " --push", s.revertByHand(br.Spec.Commit)}
	case v1alpha1.ReasonRolledBack:
		if br.Status.FailedCommit == "" {
			return Next{}
		}
		return s.takeBack(br.Status.FailedCommit)
	}
	return Next{}
}

// approvedAlready says that the approval of the step under way is there, and that only
// the pause keeps its gate closed.
func (s *Facts) approvedAlready() string {
	a, at := s.Release.Spec.Approval, &s.Release.Status
	if a == nil || a.Commit != at.UpdateCommit || a.Revision != at.UpdateRevision || a.Step < at.CurrentStepIndex || at.RollingBack {
		return ""
	}
	return fmt.Sprintf("Step %d is approved already, by %s in %s.\n", a.Step, cli.OrNone(a.ApprovedBy), cli.OrNone(cli.Short(a.ApprovedIn)))
}

// signedApproval is the option to sign the commit of an approval, where it needs one.
func (s *Facts) signedApproval() string {
	if s.Release.Spec.RequireSignedApprovals || s.Source != nil && cli.HasSigners(s.Source) {
		return " --sign"
	}
	return s.signedCommit()
}

// signedCommit is the option to sign a commit, where the source applies no other.
func (s *Facts) signedCommit() string {
	if s.Source != nil && cli.VerifiesCommits(s.Source) {
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
func (s *Facts) inClone() string {
	return "or, in a clone of " + s.Source.Spec.URL + " on " + s.Source.Spec.Ref.Branch + ":\n"
}

// approvalByHand is the approval as git commands.
func (s *Facts) approvalByHand() string {
	br := s.Release
	file := path.Join(s.Source.Spec.ApprovalsPath(), br.Name+".yaml")
	var b strings.Builder
	fmt.Fprintf(&b, "  mkdir -p %s && cat > %s <<'EOF'\n", path.Dir(file), file)
	b.WriteString(cli.ApprovalFile(br, br.Status.CurrentStepIndex))
	fmt.Fprintf(&b, "EOF\n  git add %s\n  git commit%s -m 'Approve step %d of %s'\n  git push origin HEAD:%s\n", file,
		git(s.signedApproval()), br.Status.CurrentStepIndex, br.Name, s.Source.Spec.Ref.Branch)
	return b.String()
}

func (s *Facts) byHand(edit, subject string) string {
	return fmt.Sprintf("  %s\n  git commit%s -am '%s' && git push origin HEAD:%s\n", edit, git(s.signedCommit()), subject,
		s.Source.Spec.Ref.Branch)
}

// takeBack says how to revert a commit on the branch, without another way before it.
func (s *Facts) takeBack(commit string) Next {
	const head = "The branch may still bring what failed. Take it back there"
	intro, commands, ok := strings.Cut(s.revertByHand(commit), "\n")
	if !ok {
		return Next{Head: head + "."}
	}
	return Next{Head: head + strings.TrimPrefix(intro, "or"), ByHand: commands}
}

func (s *Facts) revertByHand(commit string) string {
	if s.Source == nil || commit == "" {
		return ""
	}
	return s.inClone() + fmt.Sprintf("  git revert%s --no-edit %s && git push origin HEAD:%s\n", git(s.signedCommit()),
		cli.Short(commit), s.Source.Spec.Ref.Branch)
}

// Signs reports whether a commit has to be signed: one that approves, or another one.
func (s *Facts) Signs(approval bool) bool {
	if approval {
		return s.signedApproval() != ""
	}
	return s.signedCommit() != ""
}

// ApprovalPath returns the file in which an approval of the release is, from the root of the
// repository. The release has a source.
func (s *Facts) ApprovalPath() string {
	return path.Join(s.Source.Spec.ApprovalsPath(), s.Release.Name+".yaml")
}
