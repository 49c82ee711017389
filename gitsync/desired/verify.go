package desired

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/signature"
	"github.com/tranche-dev/tranche/gitsync/signers"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// FoundCommits are the commits that made a difference, or why they cannot be found.
type FoundCommits struct {
	commits []plumbing.Hash
	err     error // see isUncounted
	// unknown is why more commits may be among them than have made the difference.
	unknown error
}

// ifUnknown adds to why an approval does not count that it may count later.
func (c FoundCommits) ifUnknown(fact, hint string) (string, string) {
	if c.unknown == nil {
		return fact, hint
	}
	return fact + "; whether that commit has a part in the change is not known, since " + c.unknown.Error(), hintUnknown
}

// Changes are the commits that made a release or a plan what it is, from earlier syncs.
type Changes map[string]FoundCommits

// search returns a change that is known, or finds it. A search that takes too much is
// not repeated at each sync.
func (c Changes) search(known string, find func() FoundCommits) FoundCommits {
	if found, ok := c[known]; ok {
		return found
	}
	found := find()
	if c != nil && (found.err == nil && found.unknown == nil || isUncounted(found.err)) {
		c[known] = found
	}
	return found
}

// KeptChanges bounds what is kept of releases; it costs little to find again.
const KeptChanges = 100

// signed returns the approvals without those for this release that are not signed as
// the spec demands, and why those do not count. An approval that is not signed is left
// out before anything else is checked. Otherwise any committer could keep a signed one
// from counting with a second file.
func (h *History) signed(ctx context.Context, release *plan.Release, commit string, since *v1alpha1.ApprovalsSince, approvals []plan.Approval) ([]plan.Approval, plan.Problems, error) {
	if h.Signatures.Signers == nil {
		return approvals, nil, nil
	}
	var counted []plan.Approval
	var ps plan.Problems
	for i := range approvals {
		a := &approvals[i]
		if a.Metadata.Namespace == release.Plan.Namespace && a.Metadata.Name == release.Plan.Name && strings.HasPrefix(commit, a.Spec.Commit) {
			p := a.NotAsSigned()
			if p == nil {
				var err error
				if p, err = h.unsigned(ctx, a, release, commit, since); err != nil {
					return nil, nil, err
				}
			}
			if p != nil {
				ps = append(ps, p)
				continue
			}
		}
		counted = append(counted, *a)
	}
	return counted, ps, nil
}

// unsigned says why an approval is not signed as the spec demands, and nil
// where it is.
func (h *History) unsigned(ctx context.Context, a *plan.Approval, release *plan.Release, commit string, since *v1alpha1.ApprovalsSince) (*plan.Problem, error) {
	b, err := h.lastChange(a.File)
	if err != nil {
		return nil, err
	}
	by, why, hint, err := h.Signatures.SignerOfFile(ctx, h.Snapshot, a.File, b, plumbing.NewHash(a.Spec.Commit))
	if err != nil {
		return nil, err
	}
	if why != "" {
		return a.Ignored("spec", fmt.Sprintf("commit %s brought it: %s", plan.ShortCommit(b.In), why), hint), nil
	}
	h.approvers[a.File] = by
	if !h.Signatures.DistinctAuthor {
		return nil, nil
	}
	return h.sameAuthor(ctx, a, b.In, by, release, commit, since)
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
		b, err := h.lastChange(a.File)
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

// sameAuthor says why it cannot be shown that an approval is by another person than
// the change. It returns nil if a listed key signed every commit of the change, and
// none of these keys is the approver's. An author's name and address prove nothing.
// Neither does a key that is not listed, since the author can make a second one.
func (h *History) sameAuthor(ctx context.Context, a *plan.Approval, in string, approver signature.Signature, release *plan.Release, commit string, since *v1alpha1.ApprovalsSince) (*plan.Problem, error) {
	c := h.releaseChange(release, commit, since)
	change := c.authors(ctx)
	if change.err == nil && len(change.commits) == 0 {
		return a.Ignored("spec", fmt.Sprintf("that the change is by another than %s, who approves it, cannot be shown: no commit since the last release makes it", approver),
			"bring the change by a new commit"), nil
	}
	for _, find := range []func() FoundCommits{func() FoundCommits { return change }, func() FoundCommits { return c.dormant(ctx, approver) }} {
		found := find()
		if isUncounted(found.err) {
			return a.Ignored("spec", found.err.Error(), "release fewer commits at a time"), nil
		}
		if found.err != nil {
			return nil, found.err
		}
		fact, hint, err := h.writtenBy(ctx, found.commits, in, approver)
		if err != nil {
			return nil, err
		}
		if fact != "" {
			fact, hint = found.ifUnknown(fact, hint)
			return a.Ignored("spec", fact, hint), nil
		}
	}
	return nil, nil
}

// change is the difference between what counted last and what a commit renders for a
// Deployment, of which the authors count.
type change struct {
	*History
	key    string // of what is known of it
	commit plumbing.Hash
	of     comparison
	base   plumbing.Hash // see origins
	was    string        // empty: what base renders
}

// releaseChange returns the change that a release's commit makes to what was released
// last.
func (h *History) releaseChange(release *plan.Release, commit string, since *v1alpha1.ApprovalsSince) *change {
	c := &change{History: h, commit: plumbing.NewHash(commit), of: comparison{release: release, key: plan.WorkloadOf(release)}}
	for _, b := range []string{since.AppliedCommit, since.ReleasedCommit} {
		if h.Replay.Has(b) {
			c.base = plumbing.NewHash(b)
		}
	}
	c.key = strings.Join([]string{h.Key(), c.of.key.String(), commit, c.base.String()}, " ")
	return c
}

// origins returns a search for the authors of the change.
func (c *change) origins() (*origins, error) {
	o := &origins{History: c.History, of: c.of.state, base: c.base, was: c.was}
	if o.was == "" && !c.base.IsZero() {
		last, err := o.render(c.base, nil)
		if err != nil {
			return nil, err
		}
		o.was = last.state
	}
	return o, nil
}

// authors returns the commits that made the change.
func (c *change) authors(ctx context.Context) FoundCommits {
	return c.Changes.search(c.key, func() FoundCommits {
		o, err := c.origins()
		if err != nil {
			return FoundCommits{err: err}
		}
		list, err := o.find(ctx, c.commit)
		return FoundCommits{list, err, o.unknown}
	})
}

// writtenBy says that the approver has signed one of the commits, or that it cannot be
// shown that another person has signed each of them. It is empty if neither holds. The
// approval came in another commit.
func (h *History) writtenBy(ctx context.Context, commits []plumbing.Hash, in string, approver signature.Signature) (fact, hint string, err error) {
	keys := signature.Join(h.Signatures.Signers, h.Signatures.Verify)
	for _, c := range commits {
		author, why, err := h.Signatures.SignerOf(ctx, h.Snapshot, c, keys)
		switch {
		case err != nil:
			return "", "", err
		case why != "":
			return fmt.Sprintf("that the change is by another than %s, who approves it, cannot be shown: commit %s of it: %s", approver, plan.ShortCommit(c.String()), why),
				"sign the change with a key that spec.approvals.signers or spec.verify of the GitSource lists", nil
		case keys.Same(author, approver):
			return fmt.Sprintf("commit %s, which brought it, is signed by %s, as is commit %s of the change", plan.ShortCommit(in), approver, plan.ShortCommit(c.String())),
				"let another person approve it", nil
		}
	}
	return "", "", nil
}

// maxChange bounds the commits that a release may bring at once where their
// signers count.
const maxChange = 1000

var errTooManyCommits = fmt.Errorf("the release brings more than %d commits, too many to look at who signed them", maxChange)

// approvedBy is who is recorded as the approver: the principal of the key,
// where a signature counts, and else the author of the commit.
func (h *History) approvedBy(file string, b signers.FileOrigin) string {
	if by, ok := h.approvers[file]; ok {
		return gitobject.Person(cmp.Or(by.Principal, by.Key))
	}
	return b.By
}
