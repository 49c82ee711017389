package gitsync

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/inventory"
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

// since returns the branch before a release was first seen. It stays the same while
// the release has the same commit, whatever is applied meanwhile. Where the history
// of both commits has left the repository, it is the present tip.
func (h *history) since(commit string, now *v1alpha1.BatchRelease) *v1alpha1.ApprovalsSince {
	tip := h.snapshot.Tip.String()
	if now == nil || now.Spec.Commit != commit || now.Spec.ApprovalsSince == nil {
		return &v1alpha1.ApprovalsSince{AppliedCommit: h.gs.Status.AppliedCommit, ObservedCommit: tip, ReleasedCommit: releasedLast(now)}
	}
	since := *now.Spec.ApprovalsSince
	if !h.has(since.AppliedCommit) && !h.has(since.ObservedCommit) {
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

// before returns the tip of which an approval that counts is not in the history. Where a
// commit or tag is pinned, that is the tip at first sight: what was applied before need
// not be on the branch.
func (h *history) before(since *v1alpha1.ApprovalsSince) plumbing.Hash {
	if h.has(since.AppliedCommit) && (!h.gs.Spec.Ref.IsPinned() || !h.has(since.ObservedCommit)) {
		return plumbing.NewHash(since.AppliedCommit)
	}
	return plumbing.NewHash(since.ObservedCommit)
}

// has reports whether a commit is in the mirror.
func (h *history) has(commit string) bool {
	return commit != "" && h.snapshot.HasEncodedObject(plumbing.NewHash(commit)) == nil
}

// unused returns the approvals without those for this release that are older than
// it, or that are for a release that has ended, and why those do not count.
func (h *history) unused(ctx context.Context, release *plan.Release, commit string, since *v1alpha1.ApprovalsSince, approvals []plan.Approval, now *v1alpha1.BatchRelease) ([]plan.Approval, plan.Problems, error) {
	before := h.before(since)
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
		b, err := h.bringer(a.File)
		if err != nil {
			return nil, nil, err
		}
		old, err := h.precedes(ctx, plumbing.NewHash(b.in), before)
		if err != nil {
			return nil, nil, err
		}
		if old {
			ps = append(ps, a.Ignored("spec.commit", fmt.Sprintf("commit %s, which brought it, was on the branch before this release", plan.ShortCommit(b.in)), "approve again: commit a change of the file, such as a comment"))
			continue
		}
		counted = append(counted, *a)
	}
	return counted, ps, nil
}

func (h *history) precedes(ctx context.Context, commit, tip plumbing.Hash) (bool, error) {
	return h.order.Precedes(ctx, h.snapshot, commit, tip)
}

const (
	// maxEnded bounds the ended releases that a GitSource knows.
	maxEnded = 2048
	// maxEndedOfOne bounds those of one Deployment, as rollout does in the BatchRelease.
	maxEndedOfOne = 256
)

// addEnded adds the ended releases of BatchReleases to the status of the GitSource. A
// BatchRelease that is deleted, or restored without its status, then takes nothing with
// it. Deployments share the list evenly, so that many releases of one of them do not
// make the source forget those of another.
func addEnded(status *v1alpha1.GitSourceStatus, list ...*v1alpha1.BatchRelease) {
	known := map[string][]v1alpha1.EndedRelease{}
	for _, r := range status.EndedReleases {
		known[r.Deployment] = append(known[r.Deployment], r)
	}
	for _, br := range list {
		deployment := br.Namespace + "/" + br.Spec.WorkloadRef.Name
		known[deployment] = withEnded(known[deployment], deployment, br.Status.EndedReleases)
	}
	var all []v1alpha1.EndedRelease
	share := evenShare(known)
	for _, deployment := range slices.Sorted(maps.Keys(known)) {
		of := known[deployment]
		all = append(all, of[:min(len(of), share, maxEnded-len(all))]...)
	}
	status.EndedReleases = all
}

// withEnded puts in front of the known releases of a Deployment those that have ended
// since. Both lists begin with the newest. Older ones that are not known any more were
// dropped to keep to the bound.
func withEnded(known []v1alpha1.EndedRelease, deployment string, ended []v1alpha1.ReleaseName) []v1alpha1.EndedRelease {
	var newer []v1alpha1.EndedRelease
	for _, name := range ended {
		r := v1alpha1.EndedRelease{Deployment: deployment, Commit: name.Commit}
		if slices.Contains(known, r) {
			break
		}
		if !slices.Contains(newer, r) { // two revisions of one commit
			newer = append(newer, r)
		}
	}
	return append(newer, known...)
}

// evenShare returns how many releases of each Deployment are kept.
func evenShare(known map[string][]v1alpha1.EndedRelease) int {
	for share := maxEndedOfOne; share > 1; share-- {
		total := 0
		for _, of := range known {
			total += min(len(of), share)
		}
		if total <= maxEnded {
			return share
		}
	}
	return 1
}

// hasEnded reports whether the source knows that a release has ended, and its
// BatchRelease does not: that one was lost, or its plan was removed. What the
// BatchRelease knows, rollout goes by.
func (h *history) hasEnded(release *plan.Release, commit string, now *v1alpha1.BatchRelease) bool {
	if now != nil && (now.Status.Phase == v1alpha1.PhaseCompleted && now.Status.UpdateCommit == commit ||
		slices.ContainsFunc(now.Status.EndedReleases, func(r v1alpha1.ReleaseName) bool { return r.Commit == commit })) {
		return false
	}
	return slices.Contains(h.gs.Status.EndedReleases, v1alpha1.EndedRelease{Deployment: plan.WorkloadOf(release).String(), Commit: commit})
}

// noteEnded writes the names of the releases of plans into the status of the
// GitSource, before the plans are deleted. The release under way ends with its plan.
func (l *look) noteEnded(ctx context.Context, plans ...inventory.Entry) error {
	if l.outcome.ending {
		return nil
	}
	list, err := l.livePlans(ctx, plans)
	if err != nil {
		return err
	}
	for _, br := range list {
		if s := &br.Status; isUnderWay(br, s.UpdateCommit) && s.UpdateCommit != "" {
			s.EndedReleases = slices.Insert(s.EndedReleases, 0, v1alpha1.ReleaseName{Revision: s.UpdateRevision, Commit: s.UpdateCommit})
		}
	}
	addEnded(&l.gs.Status, list...)
	return l.save(ctx)
}

// noteEndedAnyway adds the ended releases of all plans where a commit was refused:
// releases of an older one go on and end meanwhile. The status is written with the
// refusal.
func (l *look) noteEndedAnyway(ctx context.Context) {
	plans := slices.DeleteFunc(inventory.Read(l.gs.Status.Inventory).Without(inventory.Set{}), func(e inventory.Entry) bool { return !inventory.IsRelease(e) })
	list, err := l.livePlans(ctx, plans)
	if err != nil {
		l.log.Info("not noted which releases have ended", "because", err.Error())
		return
	}
	addEnded(&l.gs.Status, list...)
}

// livePlans reads the BatchReleases of this source among entries. One that is being
// deleted counts as gone: where another has taken over from it, its release goes on.
func (l *look) livePlans(ctx context.Context, plans []inventory.Entry) ([]*v1alpha1.BatchRelease, error) {
	var list []*v1alpha1.BatchRelease
	for _, e := range plans {
		br := &v1alpha1.BatchRelease{}
		err := l.own.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: e.Name}, br)
		if apierrors.IsNotFound(err) || err == nil && (!inventory.IsOwned(br, l.gs) || br.DeletionTimestamp != nil) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("getting %s: %w", e, err)
		}
		list = append(list, br)
	}
	return list, nil
}
