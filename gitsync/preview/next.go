package preview

import (
	"context"
	"slices"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage/filesystem"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/lists"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/takeover"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// branch names the commits of the releases of a previewed commit, as the
// controller does once that commit is the tip of the branch.
type branch struct {
	store   storer.EncodedObjectStorer
	commit  plumbing.Hash
	set     *plan.Set
	history *desired.History // nil: the store has no history to walk
}

func newBranch(r *desired.Reader, store storer.EncodedObjectStorer, commit plumbing.Hash, set *plan.Set, t *gittree.Tree) *branch {
	b := &branch{store: store, commit: commit, set: set}
	if files, ok := store.(*filesystem.Storage); ok {
		r.Snapshot = &repository.Snapshot{EncodedObjectStorer: files, Commit: commit, Tip: commit}
		b.history = desired.NewHistory(r, &desired.State{Commit: commit.String(), Set: set, Reads: t.Reads()})
	}
	return b
}

// rival returns the name of the plan that governs the same Deployment instead of the
// next one, and stays in the cluster; empty without one.
func (b *branch) rival(gs *v1alpha1.GitSource, next *v1alpha1.BatchRelease, plans []v1alpha1.BatchRelease) string {
	next = next.DeepCopy()
	next.Labels = inventory.Labels(gs)
	for i := range plans {
		p := &plans[i]
		if next.UID == "" { // it is new, and so younger than each that is there
			next.CreationTimestamp = metav1.NewTime(p.CreationTimestamp.Add(time.Second))
		}
		stays := !inventory.IsOwned(inventory.WithKind(p), gs) || slices.ContainsFunc(b.set.Releases, func(r plan.Release) bool {
			return r.Plan.Namespace == p.Namespace && r.Plan.Name == p.Name
		})
		if stays && p.Name != next.Name && plan.ComparePlans(p, next) < 0 {
			return p.Name
		}
	}
	return ""
}

// releaseCommit returns the commit that names a release. A clone without the whole
// history does not show whether the template left the branch and came back. Then a
// release keeps its commit while its template stays.
func (b *branch) releaseCommit(ctx context.Context, r *plan.Release, live *v1alpha1.BatchRelease) string {
	if b.history != nil {
		if commit, err := b.history.ReleaseCommit(ctx, r, live); err == nil {
			return commit
		}
	}
	if live != nil && live.Spec.Commit != "" && plan.EqualTemplate(live.Spec.Template, r.Template) {
		return live.Spec.Commit
	}
	return b.commit.String()
}

// next returns the BatchRelease as the controller would write it: metadata and
// status of the live one, and the spec that the commit brings. An approval of
// the live spec stays, since it counts for its own release only.
//
// If the BatchRelease is missing, and the Deployment keeps that the template has
// failed, the commit is the one that failed.
func (v *preview) next(ctx context.Context, r *plan.Release, plans []v1alpha1.BatchRelease) (*v1alpha1.BatchRelease, error) {
	next := r.Plan.DeepCopy()
	var live *v1alpha1.BatchRelease
	if i := slices.IndexFunc(plans, func(p v1alpha1.BatchRelease) bool { return p.Name == r.Plan.Name }); i >= 0 {
		live = &plans[i]
		next = live.DeepCopy()
		next.Spec = *r.Plan.Spec.DeepCopy()
		next.Spec.Approval, next.Spec.ApprovalsSince = live.Spec.Approval, live.Spec.ApprovalsSince
		next.Generation++
	}
	next.Spec.Template = r.Template.DeepCopy()
	next.Spec.DeploymentStrategy = r.Strategy.DeepCopy()
	next.Spec.ServiceAccountName = v.gs.Spec.ServiceAccountName
	next.Spec.ReviewApprovals = desired.Reviews(&v.gs.Spec)
	next.Spec.RequireSignedApprovals = v.gs.Spec.Approvals != nil && v.gs.Spec.Approvals.Signers != nil
	if live == nil {
		read := func(ctx context.Context, namespace string) (lists.Failures, error) {
			return lists.ReadFailures(ctx, v.c, namespace, 0)
		}
		failed, err := takeover.FailedReleases(ctx, read, []plan.Release{*r}, nil)
		if err != nil && !apierrors.IsForbidden(err) { // who asks is shown that the records could not be read
			return nil, err
		}
		live = failed[plan.ReleaseName(r.Plan)]
	}
	next.Spec.Commit = v.branch.releaseCommit(ctx, r, live)
	return next, nil
}
