package desired

import (
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/gitsync/giturl"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// unknown returns a problem for each approval that names no release, neither of this
// source nor of another one that reads the same file.
func (r *Reader) unknown(releases []plan.Release, approvals []plan.Approval) (plan.Problems, error) {
	unknown := plan.UnknownApprovals(releases, approvals)
	if len(unknown) == 0 || r.Sources == nil {
		return unknown, nil
	}
	sources, err := r.Sources()
	if err != nil {
		return nil, err
	}
	return plan.UnknownApprovals(releases, WithoutOthers(approvals, sources, r.Source)), nil
}

// WithoutOthers leaves out the approvals that another GitSource of the branch reads and
// that name a release which it has applied. Two sources may share a folder of approvals.
func WithoutOthers(approvals []plan.Approval, sources *v1alpha1.GitSourceList, gs *v1alpha1.GitSource) []plan.Approval {
	left := slices.Clone(approvals)
	for i := range sources.Items {
		other := &sources.Items[i]
		if other.UID == gs.UID || !SameBranch(other, gs) {
			continue
		}
		folder := other.Spec.ApprovalsPath()
		has := map[string]bool{}
		for _, e := range inventory.Read(other.Status.Inventory) {
			if inventory.IsRelease(e) {
				has[e.Namespace+"/"+e.Name] = true
			}
		}
		left = slices.DeleteFunc(left, func(a plan.Approval) bool {
			return has[a.Metadata.Namespace+"/"+a.Metadata.Name] && (folder == "." || strings.HasPrefix(a.File, folder+"/"))
		})
	}
	return left
}

// SameBranch reports whether two sources follow the same branch or pin, however their
// URLs are written.
func SameBranch(a, b *v1alpha1.GitSource) bool {
	return a.Spec.Ref == b.Spec.Ref && giturl.Same(a.Spec.URL, b.Spec.URL)
}
