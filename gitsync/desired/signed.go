package desired

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/gitsync/authors"
	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/signature"
	"github.com/tranche-dev/tranche/gitsync/signers"
	"github.com/tranche-dev/tranche/plan"
)

// signed returns the approvals without those for this release that are not signed as
// the spec demands, and why those do not count. An approval that is not signed is left
// out before anything else is checked. Otherwise any committer could keep a signed one
// from counting with a second file.
func (h *History) signed(ctx context.Context, c *Candidate, approvals []plan.Approval) ([]plan.Approval, plan.Problems, error) {
	if h.Reader.Signatures.Signers == nil {
		return approvals, nil, nil
	}
	var counted []plan.Approval
	var ps plan.Problems
	for i := range approvals {
		a := &approvals[i]
		if c.isNamedBy(a) && strings.HasPrefix(c.Commit, a.Spec.Commit) {
			p := a.NotAsSigned()
			if p == nil {
				var err error
				if p, err = h.unsigned(ctx, a, c); err != nil {
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
func (h *History) unsigned(ctx context.Context, a *plan.Approval, c *Candidate) (*plan.Problem, error) {
	b, err := h.LastChange(a.File)
	if err != nil {
		return nil, err
	}
	by, ignored, err := h.Reader.Signatures.SignerOfApproval(ctx, h.Reader.Snapshot, a, b)
	if err != nil || ignored != nil {
		return ignored, err
	}
	h.approvers[a.File] = by
	if !h.Reader.Signatures.DistinctAuthor {
		return nil, nil
	}
	return h.sameAuthor(ctx, a, b.In, by, c)
}

// sameAuthor says why it cannot be shown that an approval is by another person than
// the change. It returns nil if a listed key signed every commit of the change, and
// none of these keys is the approver's. An author's name and address prove nothing.
// Neither does a key that is not listed, since the author can make a second one.
func (h *History) sameAuthor(ctx context.Context, a *plan.Approval, in string, approver signature.Signature, c *Candidate) (
	*plan.Problem, error,
) {
	fact, hint, err := h.releaseChange(c).PartOf(ctx, approver, in)
	switch {
	case errors.Is(err, authors.ErrNone):
		fact := fmt.Sprintf("that the change is by another than %s, who approves it, cannot be shown: "+
			"no commit since the last release makes it", approver)
		return a.Ignored("spec", fact, "bring the change by a new commit"), nil
	case authors.IsUncounted(err):
		return a.Ignored("spec", err.Error(), "release fewer commits at a time"), nil
	case err != nil || fact == "":
		return nil, err
	}
	return a.Ignored("spec", fact, hint), nil
}

// releaseChange returns the change that a release's commit makes to what was released
// last.
func (h *History) releaseChange(c *Candidate) *authors.Change {
	deployment := plan.WorkloadOf(c.Release)
	change := &authors.Change{Branch: h.Branch(), Commit: plumbing.NewHash(c.Commit), Of: authors.Compared{
		Deployment: deployment, Template: func(set *plan.Set) *corev1.PodTemplateSpec { return TemplateIn(set, c.Release) },
	}}
	for _, b := range []string{c.Since.AppliedCommit, c.Since.ReleasedCommit} {
		if h.Replay.Has(b) {
			change.Base = plumbing.NewHash(b)
		}
	}
	change.Key = strings.Join([]string{h.Reader.Key(), deployment.String(), c.Commit, change.Base.String()}, " ")
	return change
}

// Branch returns the branch for a search for authors.
func (h *History) Branch() *authors.Branch {
	return &authors.Branch{
		Store: h.Reader.Snapshot, Renderer: renderer{h}, Order: h.Reader.Order, Known: h.Reader.Changes, Signatures: &h.Reader.Signatures,
		Path: h.Reader.Source.Spec.Path, Approvals: h.Reader.Source.Spec.ApprovalsPath(), RemoteBases: h.Reader.Bases != nil,
	}
}

// renderer renders the commits of a branch for a search.
type renderer struct{ h *History }

// RenderCommit returns what a commit renders.
func (r renderer) RenderCommit(commit plumbing.Hash, t *gittree.Tree) (authors.Rendering, error) {
	d, err := r.h.Older(commit, t)
	return authors.Rendering{Set: d.Set, Reads: d.Reads, Unknown: d.unknown}, err
}

// RenderTree returns what a tree renders that is that of a commit with others taken back.
func (r renderer) RenderTree(t *gittree.Tree, of plumbing.Hash) (authors.Rendering, error) {
	d, _, err := r.h.Reader.renderPast(t, of)
	return authors.Rendering{Set: d.Set, Reads: d.Reads, Unknown: d.unknown}, err
}

// approvedBy is who is recorded as the approver: the principal of the key,
// where a signature counts, and else the author of the commit.
func (h *History) approvedBy(file string, b signers.FileOrigin) string {
	if by, ok := h.approvers[file]; ok {
		return gitobject.Person(cmp.Or(by.Principal, by.Key))
	}
	return b.By
}
