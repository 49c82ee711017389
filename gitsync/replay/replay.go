package replay

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
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

// Check finds out which approvals are older than the release that they name, and which
// releases have ended.
type Check struct {
	Source *v1alpha1.GitSource
	// Store has the commits up to Tip, the present tip of the branch.
	Store storer.EncodedObjectStorer
	Tip   plumbing.Hash
	// Order is from earlier syncs; added to.
	Order gitobject.Precedence
}

// Since returns the branch before a release was first seen. It stays the same while
// the release has the same commit, whatever is applied meanwhile. If the history of
// both commits has left the repository, it is the present tip.
func (c *Check) Since(commit string, now *v1alpha1.BatchRelease) *v1alpha1.ApprovalsSince {
	tip := c.Tip.String()
	if now == nil || now.Spec.Commit != commit || now.Spec.ApprovalsSince == nil {
		status := &c.Source.Status
		return &v1alpha1.ApprovalsSince{
			AppliedCommit: status.AppliedCommit, ObservedCommit: tip,
			ReleasedCommit: releasedLast(now), ForgottenUntil: status.ForgottenUntil,
		}
	}
	since := *now.Spec.ApprovalsSince
	if !c.Has(since.AppliedCommit) && !c.Has(since.ObservedCommit) {
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
func (c *Check) before(since *v1alpha1.ApprovalsSince) plumbing.Hash {
	if c.Has(since.AppliedCommit) && (!c.Source.Spec.Ref.IsPinned() || !c.Has(since.ObservedCommit)) {
		return plumbing.NewHash(since.AppliedCommit)
	}
	return plumbing.NewHash(since.ObservedCommit)
}

// Has reports whether a commit is in the mirror.
func (c *Check) Has(commit string) bool {
	return commit != "" && c.Store.HasEncodedObject(plumbing.NewHash(commit)) == nil
}

// Predates says why a commit is too old to approve a release that was first seen after since,
// or returns an empty string.
func (c *Check) Predates(ctx context.Context, commit plumbing.Hash, since *v1alpha1.ApprovalsSince) (string, error) {
	old, err := c.Precedes(ctx, commit, c.before(since))
	if err != nil || old {
		return "was on the branch before this release", err
	}
	return c.forgotten(commit, since.ForgottenUntil)
}

// forgotten says why an approval that a commit brought may be one that was used and is not
// known any more. It returns an empty string if it cannot be. The committer's date is part
// of what the signature covers, so a user who pushes an old approval again cannot change
// the date.
func (c *Check) forgotten(commit plumbing.Hash, until *metav1.Time) (string, error) {
	if until.IsZero() {
		return "", nil
	}
	of, err := object.GetCommit(c.Store, commit)
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

// Precedes reports whether a commit, or one of the same content, is in the history of a tip.
func (c *Check) Precedes(ctx context.Context, commit, tip plumbing.Hash) (bool, error) {
	return c.Order.Precedes(ctx, c.Store, commit, tip)
}

// HasEnded reports whether the source knows that a release has ended, and its
// BatchRelease does not: that one was lost, or its plan was removed. If the
// BatchRelease knows it, rollout goes by that.
func (c *Check) HasEnded(release *plan.Release, commit string, now *v1alpha1.BatchRelease) bool {
	if now != nil && (now.Status.Phase == v1alpha1.PhaseCompleted && now.Status.UpdateCommit == commit ||
		slices.ContainsFunc(now.Status.EndedReleases, func(r v1alpha1.ReleaseName) bool { return r.Commit == commit })) {
		return false
	}
	return c.Source.Status.HasEnded(plan.WorkloadOf(release).String(), commit)
}

// KnowsEnded reports whether the source knows that the release of an approval has ended.
func (c *Check) KnowsEnded(release *plan.Release, a *plan.Approval) bool {
	return slices.ContainsFunc(c.Source.Status.EndedReleases, func(r v1alpha1.EndedRelease) bool {
		return r.Deployment == plan.WorkloadOf(release).String() && a.IsFor(r.Commit)
	})
}
