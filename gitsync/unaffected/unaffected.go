package unaffected

import (
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-logr/logr"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/commitrange"
	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Checker keeps the commits between two that it has compared, for all sources.
type Checker struct {
	stretches commitrange.Cache
}

// IsUntouched reports whether the commits from one that is as good as applied to the tip
// leave an up-to-date source as it is. state and approvals are what was read for it.
func (c *Checker) IsUntouched(
	s *repository.Snapshot, gs *v1alpha1.GitSource, state *desired.State, approvals gittree.Reads, from plumbing.Hash,
) (bool, error) {
	if s.Commit == from {
		return true, nil
	}
	way, err := c.stretches.Between(s, from, s.Commit, commitrange.MaxShort)
	if err != nil || way == nil {
		return false, err
	}
	same, err := way.Leaves(s, &c.stretches.Folders, state.Reads, approvals)
	if err != nil || !same || len(state.Set.Releases) == 0 {
		return same, err
	}
	brought, err := way.BringsApprovals(s, gs.Spec.ApprovalsPath())
	return !brought, err
}

// UnchangedSince reports whether an applied commit, and all from there to the tip along first
// parents, give the same answers to what was read.
func (c *Checker) UnchangedSince(s *repository.Snapshot, applied plumbing.Hash, reads ...gittree.Reads) (bool, error) {
	if s.HasEncodedObject(applied) != nil {
		return false, nil
	}
	t, err := gittree.Open(s, applied)
	if err != nil {
		return false, err
	}
	for _, r := range reads {
		if same, err := r.Unchanged(t); err != nil || !same {
			return false, err
		}
	}
	way, err := c.stretches.Between(s, applied, s.Commit, desired.MaxWalk)
	if err != nil || way == nil {
		return false, err
	}
	return way.Leaves(s, &c.stretches.Folders, reads...)
}

// ApprovalReads returns what is read for the approvals of a snapshot.
func ApprovalReads(s *repository.Snapshot, gs *v1alpha1.GitSource) (gittree.Reads, error) {
	t, err := gittree.Open(s, s.Tip)
	if err != nil {
		return nil, err
	}
	_, _ = manifest.ReadApprovals(t, gs.Spec.ApprovalsPath(), gs.DefaultNamespace())
	if err := t.Err(); err != nil && !gittree.IsExceeded(err) {
		return nil, err
	}
	return t.Reads(), nil
}

// Advance takes a commit for applied in the status of a source. The commit renders what the
// applied one does, as do all commits between the two. A controller that was started since the
// status was written knows no more than these commits.
func (c *Checker) Advance(log logr.Logger, s *repository.Snapshot, gs *v1alpha1.GitSource, d *desired.State) error {
	from := gs.Status.AppliedCommit
	if from == d.Commit || d.HasBases || gs.Spec.Ref.IsPinned() || !apply.IsApplied(gs, from) {
		return nil
	}
	approvals, err := ApprovalReads(s, gs)
	if err != nil {
		return err
	}
	same, err := c.UnchangedSince(s, plumbing.NewHash(from), d.Reads, approvals)
	switch {
	case err != nil: // some older commit cannot be read; this one can, and is applied as any other
		log.V(1).Info("Commit not taken for applied", "commit", d.Commit, "because", err.Error())
	case same:
		gs.Status.AppliedCommit = d.Commit
	}
	return nil
}
