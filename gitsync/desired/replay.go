package desired

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// An approval counts for one release and for no other. A merge or a force-push can
// bring back a release that has ended, together with the approvals that it had. Two
// rules keep these from counting:
//
//   - The commit that brought an approval is not in the history of the tip that was
//     applied before the release was first seen.
//   - A release that has ended opens no gate again. Rollout keeps the names of the
//     ended releases in the status of the BatchRelease. gitsync keeps them in the
//     status of the GitSource, too, since a BatchRelease may be lost.
//
// Both lists have a bound. Once the list of the GitSource was full, a third rule
// replaces what it has lost. An approval counts only if it was committed after the
// newest release that had ended by then. ended.go has the list.

// replayCheck finds out which approvals are older than the release that they name, and which
// releases have ended.
type replayCheck struct{ *Reader }

// Since returns the branch before a release was first seen. It stays the same while
// the release has the same commit, whatever is applied meanwhile. If the history of
// both commits has left the repository, it is the present tip.
func (c replayCheck) Since(commit string, now *v1alpha1.BatchRelease) *v1alpha1.ApprovalsSince {
	tip := c.Snapshot.Tip.String()
	if now == nil || now.Spec.Commit != commit || now.Spec.ApprovalsSince == nil {
		return &v1alpha1.ApprovalsSince{AppliedCommit: c.Source.Status.AppliedCommit, ObservedCommit: tip, ReleasedCommit: releasedLast(now), ForgottenUntil: c.Source.Status.ForgottenUntil}
	}
	since := *now.Spec.ApprovalsSince
	if !c.has(since.AppliedCommit) && !c.has(since.ObservedCommit) {
		since.ObservedCommit = tip
	}
	return &since
}

// releasedLast returns the commit of the release that completed last, when another one
// is first seen. A release that was superseded or rolled back has released nothing, and
// neither has the way back from it.
func releasedLast(now *v1alpha1.BatchRelease) string {
	if now == nil {
		return ""
	}
	s := &now.Status
	switch {
	case len(s.History) == 0 && s.Phase == v1alpha1.PhaseCompleted && s.FailedCommit != s.UpdateCommit:
		return s.UpdateCommit // a first install
	case len(s.History) > 0 && s.History[0].Outcome == v1alpha1.OutcomeCompleted:
		return s.History[0].Commit
	case now.Spec.ApprovalsSince != nil:
		return now.Spec.ApprovalsSince.ReleasedCommit
	}
	return ""
}

// before returns the tip of which an approval that counts is not in the history. If a
// commit or tag is pinned, that is the tip at first sight, since the commit applied
// before need not be on the branch.
func (c replayCheck) before(since *v1alpha1.ApprovalsSince) plumbing.Hash {
	if c.has(since.AppliedCommit) && (!c.Source.Spec.Ref.IsPinned() || !c.has(since.ObservedCommit)) {
		return plumbing.NewHash(since.AppliedCommit)
	}
	return plumbing.NewHash(since.ObservedCommit)
}

// has reports whether a commit is in the mirror.
func (c replayCheck) has(commit string) bool {
	return commit != "" && c.Snapshot.HasEncodedObject(plumbing.NewHash(commit)) == nil
}

// unused returns the approvals without those for this release that do not count, and
// why these do not. They are older than the release, or are for a release that has
// ended.
func (h *History) unused(ctx context.Context, release *plan.Release, commit string, since *v1alpha1.ApprovalsSince, approvals []plan.Approval, now *v1alpha1.BatchRelease) ([]plan.Approval, plan.Problems, error) {
	ended := h.hasEnded(release, commit, now)
	var counted []plan.Approval
	var ps plan.Problems
	for i := range approvals {
		a := &approvals[i]
		if a.Metadata.Namespace != release.Plan.Namespace || a.Metadata.Name != release.Plan.Name || !a.IsFor(commit) {
			counted = append(counted, *a)
			continue
		}
		if ended {
			ps = append(ps, a.Ignored("spec.commit", fmt.Sprintf("the release of commit %s has ended, and its BatchRelease was removed since", plan.ShortCommit(commit)), "bring the change by a new commit"))
			continue
		}
		b, err := h.lastChange(a.File)
		if err != nil {
			return nil, nil, err
		}
		old, err := h.Predates(ctx, plumbing.NewHash(b.In), since)
		if err != nil {
			return nil, nil, err
		}
		if old != "" {
			ps = append(ps, a.Ignored("spec.commit", fmt.Sprintf("commit %s, which brought it, %s", plan.ShortCommit(b.In), old), "approve again: commit a change of the file, such as a comment"))
			continue
		}
		counted = append(counted, *a)
	}
	return counted, ps, nil
}

// Predates says why a commit is too old to approve a release that was first seen after since,
// or returns an empty string.
func (c replayCheck) Predates(ctx context.Context, commit plumbing.Hash, since *v1alpha1.ApprovalsSince) (string, error) {
	old, err := c.precedes(ctx, commit, c.before(since))
	if err != nil || old {
		return "was on the branch before this release", err
	}
	return c.forgotten(commit, since.ForgottenUntil)
}

// forgotten says why an approval that a commit brought may be one that was used and is not
// known any more. It returns an empty string if it cannot be. The committer's date is part
// of what the signature covers, so a user who pushes an old approval again cannot change
// the date.
func (c replayCheck) forgotten(commit plumbing.Hash, until *metav1.Time) (string, error) {
	if until.IsZero() {
		return "", nil
	}
	of, err := object.GetCommit(c.Snapshot, commit)
	if err != nil {
		return "", gittree.Missing("commit", commit, err)
	}
	return tooOld(of.Committer.When, until.Time, time.Now()), nil
}

// ClockSkew is how far the clocks of those who commit may be apart.
const ClockSkew = 24 * time.Hour

// tooOld says why an approval of a date does not count where those until another may have
// been used, or returns an empty string. A date to come shows that the signer's clock was
// wrong, so it does not tell when the approval was given.
func tooOld(date, until, now time.Time) string {
	switch {
	case !date.After(until):
		return fmt.Sprintf("is of %s: of the approvals until %s it is not known any more which were used", stamp(date), stamp(until))
	case date.After(now.Add(ClockSkew)):
		return fmt.Sprintf("is of %s, which is yet to come", stamp(date))
	}
	return ""
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func (c replayCheck) precedes(ctx context.Context, commit, tip plumbing.Hash) (bool, error) {
	return c.Order.Precedes(ctx, c.Snapshot, commit, tip)
}

// hasEnded reports whether the source knows that a release has ended, and its
// BatchRelease does not: that one was lost, or its plan was removed. If the
// BatchRelease knows it, rollout goes by that.
func (c replayCheck) hasEnded(release *plan.Release, commit string, now *v1alpha1.BatchRelease) bool {
	if now != nil && (now.Status.Phase == v1alpha1.PhaseCompleted && now.Status.UpdateCommit == commit ||
		slices.ContainsFunc(now.Status.EndedReleases, func(r v1alpha1.ReleaseName) bool { return r.Commit == commit })) {
		return false
	}
	return c.Source.Status.HasEnded(plan.WorkloadOf(release).String(), commit)
}

// knowsEnded reports whether the source knows that the release of an approval has ended.
func (c replayCheck) knowsEnded(release *plan.Release, a *plan.Approval) bool {
	return slices.ContainsFunc(c.Source.Status.EndedReleases, func(r v1alpha1.EndedRelease) bool {
		return r.Deployment == plan.WorkloadOf(release).String() && a.IsFor(r.Commit)
	})
}
