package cli

import (
	"fmt"
	"strings"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// PinOf is what a reference pins, or the branch that it follows.
func PinOf(r v1alpha1.GitReference) string {
	switch {
	case r.Commit != "":
		return "commit " + Short(r.Commit)
	case r.SemVer != "":
		return "the highest version in " + r.SemVer
	case r.Tag != "":
		return "tag " + r.Tag
	default:
		return r.Branch
	}
}

// HasSigners reports whether only signed approvals count for a source.
func HasSigners(gs *v1alpha1.GitSource) bool {
	return gs.Spec.Approvals != nil && gs.Spec.Approvals.Signers != nil
}

// VerifiesCommits reports whether a source applies only commits that are signed.
func VerifiesCommits(gs *v1alpha1.GitSource) bool {
	return gs.Spec.Verify != nil && gs.Spec.Verify.Mode != v1alpha1.VerifyTag
}

// ApprovedFor returns the note of an approval: the steps that it is for. After an
// edit of the plan another commit has to bring the approval, and the note is what
// that commit changes.
func ApprovedFor(br *v1alpha1.BatchRelease) string {
	return "For the steps " + StepsText(br) + "."
}

func StepsText(br *v1alpha1.BatchRelease) string {
	steps := make([]string, len(br.Spec.Strategy.Steps))
	for i, s := range br.Spec.Strategy.Steps {
		steps[i] = s.Replicas.String()
	}
	return strings.Join(steps, ", ")
}

// ApprovalFile is a BatchApproval of the release under way. Revision and
// commit are in quotes: either may look like a number.
func ApprovalFile(br *v1alpha1.BatchRelease, step int32) string {
	return fmt.Sprintf(`# %s
apiVersion: %s
kind: BatchApproval
metadata:
  name: %s
  namespace: %s
spec:
  revision: "%s"
  commit: "%s"
  step: %d
`, ApprovedFor(br), v1alpha1.GroupVersion, br.Name, br.Namespace, br.Status.UpdateRevision, br.Spec.Commit, step)
}

// TrailerRejected is the trailer that says why a release was rejected. The trailers
// Tranche-Release and Tranche-Commit beside it name that release.
const TrailerRejected = "Tranche-Rejected"
