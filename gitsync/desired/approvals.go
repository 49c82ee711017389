package desired

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/signers"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// ForReleases returns the approvals that name a release.
func ForReleases(approvals []plan.Approval) []plan.Approval {
	return slices.DeleteFunc(approvals, func(a plan.Approval) bool { return !a.ForRelease() })
}

// Releases returns the BatchReleases to apply for releases of a commit, with all that
// Git says of them, and the approvals that count for nothing.
func (r *Reader) Releases(ctx context.Context, d *State, releases []plan.Release, live map[string]*v1alpha1.BatchRelease) (
	[]*v1alpha1.BatchRelease, plan.Problems, error,
) {
	t, err := gittree.Open(r.Snapshot, r.Snapshot.Tip)
	if err != nil {
		return nil, nil, err
	}
	// Apart from what is rendered, so that an approval needs no new rendering.
	approvals, ignored := manifest.ReadApprovals(t, r.Source.Spec.ApprovalsPath(), r.Source.DefaultNamespace())
	if err := t.Err(); err != nil && !gittree.IsExceeded(err) {
		return nil, nil, err
	}
	r.Approvals = t.Reads()
	approvals = ForReleases(approvals)
	ignored = append(ignored, d.Set.Ignored...)
	unknown, err := r.unknown(releases, approvals)
	if err != nil {
		return nil, nil, err
	}
	ignored = append(ignored, unknown...)
	h := NewHistory(r, d)
	var list []*v1alpha1.BatchRelease
	r.Ignored = map[string]plan.Problems{}
	for i := range releases {
		release := &releases[i]
		before := len(ignored)
		now := live[release.Plan.Namespace+"/"+release.Plan.Name]
		commit, err := h.ReleaseCommit(ctx, release, cmp.Or(now, r.Failed[plan.ReleaseName(release.Plan)]))
		if err != nil {
			return nil, nil, err
		}
		c := &Candidate{release, commit, h.Replay.Since(commit, now), now}
		approval, more, err := h.Approval(ctx, c, approvals)
		if err != nil {
			return nil, nil, err
		}
		ignored = append(ignored, more...)
		br, more, err := h.batchRelease(c, approval)
		if err != nil {
			return nil, nil, err
		}
		ignored = append(ignored, more...)
		r.Ignored[plan.ReleaseName(release.Plan)] = slices.Clone(ignored[before:])
		br.Spec.ApprovalsSince = c.Since
		if err := h.noteFirstSeen(ctx, br.Spec.Approval, c.Live); err != nil {
			return nil, nil, err
		}
		list = append(list, br)
	}
	return list, ignored, nil
}

// Candidate is a release that an approval may be for.
type Candidate struct {
	Release *plan.Release
	// Commit names the release, see [History.ReleaseCommit].
	Commit string
	// Since is the branch before the release was first seen.
	Since *v1alpha1.ApprovalsSince
	// Live is the BatchRelease in the cluster, or nil.
	Live *v1alpha1.BatchRelease
}

// isNamedBy reports whether an approval has the name of the release.
func (c *Candidate) isNamedBy(a *plan.Approval) bool {
	return a.Metadata.Namespace == c.Release.Plan.Namespace && a.Metadata.Name == c.Release.Plan.Name
}

// Approval returns the approval that counts for a release, and why others that
// name it do not.
//
// An approval of a release that has ended is history. It is reported only where it was
// brought while another release is under way, because its author may have meant that
// one.
func (h *History) Approval(ctx context.Context, c *Candidate, approvals []plan.Approval) (*plan.Approval, plan.Problems, error) {
	signed, ignored, err := h.signed(ctx, c, approvals)
	if err != nil {
		return nil, nil, err
	}
	unused, more, err := h.unused(ctx, c, signed)
	if err != nil {
		return nil, nil, err
	}
	ignored = append(ignored, more...)
	approval, more := plan.MatchApproval(c.Release, c.Commit, unused)
	if c.Live == nil && h.Reader.Source.Status.AppliedCommit == "" {
		return approval, append(ignored, more...), nil
	}
	current, err := h.current(ctx, c, unused)
	if err != nil {
		return nil, nil, err
	}
	_, more = plan.MatchApproval(c.Release, c.Commit, current)
	if c.Live == nil {
		return approval, append(ignored, more...), nil
	}
	if !IsUnderWay(c.Live, c.Commit) && c.Live.Status.Phase == v1alpha1.PhaseCompleted && c.Live.Status.UpdateCommit == c.Commit {
		ignored = nil // those are of a release that has ended, too
	}
	return approval, append(ignored, more...), nil
}

// current returns the approvals that are no history: those of releases that have not
// ended. An approval of another release than the one under way must have come after the
// one under way began. If the BatchRelease was deleted and made again, its release has
// another commit than before. Approvals from before that are history, too.
func (h *History) current(ctx context.Context, c *Candidate, approvals []plan.Approval) ([]plan.Approval, error) {
	underWay := c.Live != nil && IsUnderWay(c.Live, c.Commit)
	var current []plan.Approval
	for i := range approvals {
		a := &approvals[i]
		ended := c.Live != nil && hasEnded(c.Live, a) || h.Replay.KnowsEnded(c.Release, a)
		past := ended && (!underWay || !a.IsFor(c.Commit))
		if c.isNamedBy(a) && (underWay || !past) && !a.IsFor(c.Commit) {
			b, err := h.writtenIn(a.File)
			if err != nil {
				return nil, err
			}
			why, err := h.Replay.Predates(ctx, plumbing.NewHash(b.In), c.Since)
			if err != nil {
				return nil, err
			}
			past = why != ""
		}
		if !past {
			current = append(current, *a)
		}
	}
	return current, nil
}

// IsUnderWay reports whether the status says that the release from a commit has
// begun and has not ended, and that it is no rollback.
func IsUnderWay(br *v1alpha1.BatchRelease, commit string) bool {
	s := &br.Status
	return s.Phase != "" && s.Phase != v1alpha1.PhaseCompleted && !s.RollingBack && s.UpdateCommit == commit
}

// hasEnded reports whether an approval is for a release that has ended.
func hasEnded(br *v1alpha1.BatchRelease, a *plan.Approval) bool {
	s := &br.Status
	return s.Phase == v1alpha1.PhaseCompleted && a.IsFor(s.UpdateCommit) ||
		slices.ContainsFunc(s.History, func(r v1alpha1.ReleaseRecord) bool { return a.IsFor(r.Commit) }) ||
		slices.ContainsFunc(s.EndedReleases, func(r v1alpha1.ReleaseName) bool { return a.IsFor(r.Commit) })
}

// LastChange returns the commit that brought a file's content as it is at the tip.
func (h *History) LastChange(file string) (signers.FileOrigin, error) {
	b, err := signers.LastChange(h.Reader.Snapshot, h.Reader.Snapshot.Tip, file, h.Reader.Brought[file])
	if err == nil {
		h.Reader.Brought[file] = b
	}
	return b, err
}

// writtenIn returns the commit in which who gave an approval wrote it. A commit that only moves the
// file gives none.
func (h *History) writtenIn(file string) (signers.FileOrigin, error) {
	b, err := h.LastChange(file)
	if err != nil {
		return b, err
	}
	key := b.In + "\x00" + file // no path has it
	if known, ok := h.Reader.Brought[key]; ok {
		return known, nil
	}
	if b, err = signers.WrittenIn(h.Reader.Snapshot, file, b); err == nil {
		h.Reader.Brought[key] = b
	}
	return b, err
}

// unused returns the approvals without those for this release that do not count, and
// why these do not. They are older than the release, or are for a release that has
// ended.
func (h *History) unused(ctx context.Context, c *Candidate, approvals []plan.Approval) ([]plan.Approval, plan.Problems, error) {
	ended := h.Replay.HasEnded(c.Release, c.Commit, c.Live)
	var counted []plan.Approval
	var ps plan.Problems
	for i := range approvals {
		a := &approvals[i]
		if !c.isNamedBy(a) || !a.IsFor(c.Commit) {
			counted = append(counted, *a)
			continue
		}
		if ended {
			fact := fmt.Sprintf("the release of commit %s has ended, and its BatchRelease was removed since", plan.ShortCommit(c.Commit))
			ps = append(ps, a.Ignored("spec.commit", fact, "bring the change by a new commit"))
			continue
		}
		b, err := h.writtenIn(a.File)
		if err != nil {
			return nil, nil, err
		}
		old, err := h.Replay.Predates(ctx, plumbing.NewHash(b.In), c.Since)
		if err != nil {
			return nil, nil, err
		}
		if old != "" {
			fact := fmt.Sprintf("commit %s, which brought it, %s", plan.ShortCommit(b.In), old)
			ps = append(ps, a.Ignored("spec.commit", fact, "approve again: commit a change of the file, such as a comment"))
			continue
		}
		if c.Live != nil && IsUnderWay(c.Live, c.Commit) && c.Live.Status.HasEndedBefore() { // rollout opens no gate by it
			fact := fmt.Sprintf("the release of commit %s has ended before", plan.ShortCommit(c.Commit))
			ps = append(ps, a.Ignored("spec.commit", fact, "bring the change by a new commit"))
		}
		counted = append(counted, *a)
	}
	return counted, ps, nil
}
