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
func (r *Reader) Releases(ctx context.Context, d *State, releases []plan.Release, live map[string]*v1alpha1.BatchRelease) ([]*v1alpha1.BatchRelease, plan.Problems, error) {
	t, err := gittree.Open(r.Snapshot, r.Snapshot.Tip)
	if err != nil {
		return nil, nil, err
	}
	// Apart from what is rendered, so that an approval needs no new rendering.
	approvals, ignored := manifest.ReadApprovals(t, ApprovalsPath(&r.Source.Spec), r.Source.Namespace, r.Source.Spec.TargetNamespace)
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
		since := h.Replay.Since(commit, now)
		approval, more, err := h.Approval(ctx, release, commit, since, approvals, now)
		if err != nil {
			return nil, nil, err
		}
		ignored = append(ignored, more...)
		br, more, err := h.batchRelease(release, commit, approval, now)
		if err != nil {
			return nil, nil, err
		}
		ignored = append(ignored, more...)
		r.Ignored[plan.ReleaseName(release.Plan)] = slices.Clone(ignored[before:])
		br.Spec.ApprovalsSince = since
		list = append(list, br)
	}
	return list, ignored, nil
}

// Approval returns the approval that counts for a release, and why others that
// name it do not.
//
// An approval of a release that has ended is history. It is reported only where it was
// brought while another release is under way, because its author may have meant that
// one.
func (h *History) Approval(ctx context.Context, release *plan.Release, commit string, since *v1alpha1.ApprovalsSince, approvals []plan.Approval, now *v1alpha1.BatchRelease) (*plan.Approval, plan.Problems, error) {
	signed, ignored, err := h.signed(ctx, release, commit, since, approvals)
	if err != nil {
		return nil, nil, err
	}
	unused, more, err := h.unused(ctx, release, commit, since, signed, now)
	if err != nil {
		return nil, nil, err
	}
	ignored = append(ignored, more...)
	approval, more := plan.MatchApproval(release, commit, unused)
	if now == nil && h.Reader.Source.Status.AppliedCommit == "" {
		return approval, append(ignored, more...), nil
	}
	current, err := h.current(ctx, release, commit, since, unused, now)
	if err != nil {
		return nil, nil, err
	}
	_, more = plan.MatchApproval(release, commit, current)
	if now == nil {
		return approval, append(ignored, more...), nil
	}
	if !IsUnderWay(now, commit) && now.Status.Phase == v1alpha1.PhaseCompleted && now.Status.UpdateCommit == commit {
		ignored = nil // those are of a release that has ended, too
	}
	return approval, append(ignored, more...), nil
}

// current returns the approvals that are no history: those of releases that have not
// ended. An approval of another release than the one under way must have come after the
// one under way began. If the BatchRelease was deleted and made again, its release has
// another commit than before. Approvals from before that are history, too.
func (h *History) current(ctx context.Context, release *plan.Release, commit string, since *v1alpha1.ApprovalsSince, approvals []plan.Approval, now *v1alpha1.BatchRelease) ([]plan.Approval, error) {
	underWay := now != nil && IsUnderWay(now, commit)
	var current []plan.Approval
	for i := range approvals {
		a := &approvals[i]
		past := (now != nil && hasEnded(now, a) || h.Replay.KnowsEnded(release, a)) && (!underWay || !a.IsFor(commit))
		if names := a.Metadata.Namespace == release.Plan.Namespace && a.Metadata.Name == release.Plan.Name; names && (underWay || !past) && !a.IsFor(commit) {
			b, err := h.LastChange(a.File)
			if err != nil {
				return nil, err
			}
			why, err := h.Replay.Predates(ctx, plumbing.NewHash(b.In), since)
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

// unused returns the approvals without those for this release that do not count, and
// why these do not. They are older than the release, or are for a release that has
// ended.
func (h *History) unused(ctx context.Context, release *plan.Release, commit string, since *v1alpha1.ApprovalsSince, approvals []plan.Approval, now *v1alpha1.BatchRelease) ([]plan.Approval, plan.Problems, error) {
	ended := h.Replay.HasEnded(release, commit, now)
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
		b, err := h.LastChange(a.File)
		if err != nil {
			return nil, nil, err
		}
		old, err := h.Replay.Predates(ctx, plumbing.NewHash(b.In), since)
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
