package main

import (
	"fmt"
	"path"
	"strings"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// pinOf is what a reference pins, or the branch that it follows.
func pinOf(r v1alpha1.GitReference) string {
	switch {
	case r.Commit != "":
		return "commit " + short(r.Commit)
	case r.SemVer != "":
		return "the highest version in " + r.SemVer
	case r.Tag != "":
		return "tag " + r.Tag
	default:
		return r.Branch
	}
}

// approvalsPath is where the approvals of a source are, from the root of its
// repository.
func approvalsPath(spec *v1alpha1.GitSourceSpec) string {
	if spec.Approvals != nil && spec.Approvals.Path != "" {
		return path.Clean(spec.Approvals.Path)
	}
	return path.Join(spec.Path, "approvals")
}

// hasSigners reports whether only signed approvals count for a source.
func hasSigners(gs *v1alpha1.GitSource) bool {
	return gs.Spec.Approvals != nil && gs.Spec.Approvals.Signers != nil
}

// approvedFor returns the note of an approval: the steps that it is for. After an
// edit of the plan another commit has to bring the approval, and the note is what
// that commit changes.
func approvedFor(br *v1alpha1.BatchRelease) string {
	return "For the steps " + stepsText(br) + "."
}

func stepsText(br *v1alpha1.BatchRelease) string {
	steps := make([]string, len(br.Spec.Strategy.Steps))
	for i, s := range br.Spec.Strategy.Steps {
		steps[i] = s.Replicas.String()
	}
	return strings.Join(steps, ", ")
}

// approvalFile is a BatchApproval of the release under way. Revision and
// commit are in quotes: either may look like a number.
func approvalFile(br *v1alpha1.BatchRelease, step int32) string {
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
`, approvedFor(br), v1alpha1.GroupVersion, br.Name, br.Namespace, br.Status.UpdateRevision, br.Spec.Commit, step)
}

// trailerRejected is the trailer that says why a release was rejected. The trailers
// Tranche-Release and Tranche-Commit beside it name that release.
const trailerRejected = "Tranche-Rejected"
