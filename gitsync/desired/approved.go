package desired

import (
	"context"
	"errors"

	"github.com/go-git/go-git/v5/plumbing"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/gitsync/authors"
	"github.com/tranche-dev/tranche/gitsync/signers"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// batchRelease returns a plan with the fields that only the controller sets, and
// why its approval does not count for all that it names.
func (h *History) batchRelease(c *Candidate, approval *plan.Approval) (*v1alpha1.BatchRelease, plan.Problems, error) {
	br := c.Release.Plan.DeepCopy()
	br.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("BatchRelease"))
	br.Spec.Template = c.Release.Template.DeepCopy()
	br.Spec.DeploymentStrategy = c.Release.Strategy.DeepCopy()
	br.Spec.ServiceAccountName = h.Reader.Source.Spec.ServiceAccountName
	br.Spec.RequireSignedApprovals = h.Reader.Signatures.Signers != nil
	br.Spec.Commit = c.Commit
	h.describe(br, c.Live)
	br.Spec.ReviewApprovals = Reviews(&h.Reader.Source.Spec)
	if approval == nil {
		return br, nil, nil
	}
	var ignored plan.Problems
	if revision := Releasing(c.Live, c.Commit); revision != "" && revision != approval.Spec.Revision {
		// The approval is handed on all the same: the gate is where it is judged.
		ignored = append(ignored, plan.OtherRevision(approval, revision))
	}
	given, err := h.Given(c, approval)
	if unknown, ok := errors.AsType[*unknownRendering](err); ok {
		p := approval.Ignored("spec.step", "the steps that it approves are not known yet: "+unknown.Error(), authors.HintUnknown)
		return br, plan.Problems{p}, nil
	}
	if err != nil {
		return nil, nil, err
	}
	done := c.Live != nil && isDone(c.Live, c.Commit, approval)
	if len(given.Steps) == 0 {
		if !done {
			ignored = append(ignored, approval.StepsUnknown(c.Release, given.ApprovedIn))
		}
		return br, ignored, nil
	}
	br.Spec.Approval = given
	if p := approval.StepsChanged(given.Steps, given.ApprovedIn, br.Spec.Strategy.Steps); p != nil && !done {
		ignored = append(ignored, p)
	}
	return br, ignored, nil
}

// Given returns an approval of a release as the BatchRelease has it. It has no steps
// where the commit that brought it has no plan of its name for the Deployment; such an
// approval opens no gate.
func (h *History) Given(c *Candidate, approval *plan.Approval) (*v1alpha1.Approval, error) {
	b, err := h.writtenIn(approval.File)
	if err != nil {
		return nil, err
	}
	steps, err := h.stepsSeen(c, b)
	if err != nil {
		return nil, err
	}
	return &v1alpha1.Approval{
		Revision: approval.Spec.Revision, Commit: c.Commit, Step: approval.Spec.Step, Steps: steps,
		ApprovedBy: h.approvedBy(approval.File, b), ApprovedIn: b.In, Override: approval.Spec.Override.DeepCopy(),
	}, nil
}

// stepsSeen are the steps that who gave an approval has seen: those of the commit with the
// approval. If a commit or tag is pinned, they are those of the pin when the approval was
// seen first, which spec.approval keeps. In both cases the commit with the approval says
// for which Deployment it is, or another pin could say so afterwards. A plan that has come from the
// path of another source was not in this path then: spec.approval has the steps from there.
func (h *History) stepsSeen(c *Candidate, b signers.FileOrigin) ([]intstr.IntOrString, error) {
	steps, err := h.StepsIn(b.In, c.Release)
	if err != nil || len(steps) > 0 && !h.Reader.Source.Spec.Ref.IsPinned() {
		return steps, err
	}
	if c.Live != nil && c.Live.Spec.WorkloadRef.Name == c.Release.Plan.Spec.WorkloadRef.Name {
		if a := c.Live.Spec.Approval; a != nil && a.Commit == c.Commit && a.ApprovedIn == b.In {
			return a.Steps, nil
		}
	}
	if len(steps) == 0 {
		return nil, nil
	}
	return h.StepsIn(h.State.Commit, c.Release)
}

// isDone reports whether the gates that an approval names have all opened.
func isDone(br *v1alpha1.BatchRelease, commit string, a *plan.Approval) bool {
	s := &br.Status
	return s.UpdateCommit == commit && (s.Phase == v1alpha1.PhaseCompleted || s.RollingBack || IsPast(br, a.Spec.Step))
}

// IsPast reports whether a release is beyond the gate of a step.
func IsPast(br *v1alpha1.BatchRelease, step int32) bool {
	return br.Status.Phase != "" && br.Status.CurrentStepIndex > step
}

// Releasing returns the revision that the release from a commit brings; empty
// where none is under way.
func Releasing(br *v1alpha1.BatchRelease, commit string) string {
	if br == nil || !IsUnderWay(br, commit) {
		return ""
	}
	return br.Status.UpdateRevision
}

// noteFirstSeen notes with an approval when its commit was seen first. That stays, though
// the list of tips may lose it. It is not noted without signers, or for an approval from
// before these were set.
func (h *History) noteFirstSeen(ctx context.Context, a *v1alpha1.Approval, now *v1alpha1.BatchRelease) (err error) {
	if a == nil || h.Reader.Signatures.Signers == nil {
		return nil
	}
	if now != nil && now.Spec.Approval != nil && now.Spec.Approval.ApprovedIn == a.ApprovedIn {
		a.FirstSeen = now.Spec.Approval.FirstSeen.DeepCopy()
		return nil
	}
	a.FirstSeen, err = h.Reader.Signatures.FirstSeen(ctx, h.Reader.Snapshot, plumbing.NewHash(a.ApprovedIn))
	return err
}
