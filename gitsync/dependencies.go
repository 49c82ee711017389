package gitsync

import (
	"context"
	"fmt"

	"github.com/go-git/go-git/v5/plumbing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/dependencies"
	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/metrics"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/requests"
	"github.com/tranche-dev/tranche/gitsync/siblings"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// mayDependOn refuses references that the options refuse.
func (o Options) mayDependOn(gs *v1alpha1.GitSource) error {
	if !o.NoCrossNamespaceRefs {
		return nil
	}
	return dependencies.RefuseOtherNamespaces(gs)
}

// awaited returns the sources that are not as the next commit of this one needs them. A commit
// that renders nothing new, as with an approval, waits for no source.
func awaited(ctx context.Context, src *source, s *repository.Snapshot) ([]string, error) {
	if len(src.gs.Spec.DependsOn) == 0 || isRendered(ctx, src, s) {
		return nil, nil
	}
	w := dependencies.Waiter{
		Source: src.gs, Own: src.own, Cached: src.status,
		HasApplied: func(ctx context.Context, other *v1alpha1.GitSource) bool { return hasApplied(ctx, src, other, s) },
		Ask: func(ctx context.Context, other *v1alpha1.GitSource) error {
			return askOther(ctx, src, other, s.Commit.String())
		},
	}
	lacks, err := w.Lacks(ctx)
	if err != nil || len(lacks) == 0 || rendersAsApplied(ctx, src, s) {
		return nil, err
	}
	return lacks, nil
}

// hasApplied reports whether another source of the branch has applied a commit, or one since
// which nothing touches it. Its status need not say so. This controller knows that of the
// sources that it has looked at itself.
func hasApplied(ctx context.Context, src *source, other *v1alpha1.GitSource, s *repository.Snapshot) bool {
	if other.Status.AppliedCommit == s.Commit.String() {
		return true
	}
	if !src.options.selects(other) {
		return false
	}
	keep := src.cache.load(client.ObjectKeyFromObject(other))
	if keep.last == nil || !keep.last.isOf(other) {
		return false
	}
	from := other.Status.AppliedCommit
	if keep.passed.isOf(other) {
		from = keep.passed.tip
	}
	if refusal, err := siblings.Refusal(ctx, src.own, s, other); err != nil || refusal != "" {
		return false // a commit that touches nothing has to be signed all the same
	}
	same, err := src.unaffected.IsUntouched(s, other, keep.desired, keep.last.approvals, plumbing.NewHash(from))
	return err == nil && same
}

// askOther asks a source that another controller looks at for a sync: only that one knows
// whether a commit touches it. It is asked once for each commit.
func askOther(ctx context.Context, src *source, other *v1alpha1.GitSource, commit string) error {
	asked := requests.Asked(other)
	isAsked := asked == commit || asked == v1alpha1.AnnotationReconcileDisabled
	if src.options.selects(other) || other.Status.ObservedCommit == commit || isAsked {
		return nil
	}
	old := other.DeepCopy()
	if other.Annotations == nil {
		other.Annotations = map[string]string{}
	}
	other.Annotations[v1alpha1.AnnotationReconcile] = commit
	patch := client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}) // a user may have disabled it just now
	err := src.status.Patch(ctx, other, patch, client.FieldOwner(v1alpha1.ManagerGitSync))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("asking GitSource %s/%s for a sync: %w", other.Namespace, other.Name, err)
	}
	return nil
}

// isRendered reports whether what was rendered last, with the spec that the
// source has now, is good for a snapshot, too.
func isRendered(ctx context.Context, src *source, s *repository.Snapshot) bool {
	same := src.gs.Status.AppliedCommit == s.Commit.String()
	r := desired.Reader{Source: src.gs, Bases: src.bases(ctx), Folders: src.options.Renderer}
	switch {
	case src.gs.Status.AppliedCommit == "":
		return false
	case src.cached.desired == nil: // after a restart
		return apply.IsApplied(src.gs, s.Commit.String())
	case same || src.cached.desired.Key != r.Key():
		return src.cached.desired.Key == r.Key()
	}
	untouched, err := src.unaffected.UnchangedSince(s, plumbing.NewHash(src.gs.Status.AppliedCommit), src.cached.desired.Reads)
	return err == nil && untouched
}

// rendersAsApplied renders a commit after a restart, and reports whether it is as the one
// that is applied, as are all between the two.
func rendersAsApplied(ctx context.Context, src *source, s *repository.Snapshot) bool {
	applied := plumbing.NewHash(src.gs.Status.AppliedCommit)
	if src.cached.desired != nil || !apply.IsApplied(src.gs, src.gs.Status.AppliedCommit) || s.HasEncodedObject(applied) != nil {
		return false
	}
	r := &desired.Reader{
		Snapshot: s, Source: src.gs, Mapper: src.mapper, Bases: src.bases(ctx), Folders: src.rendering.Folders(),
		ProviderOf: src.options.ProviderOf,
	}
	d, rendered, err := r.Read(nil)
	metrics.Rendered(src.name, rendered)
	if err != nil || d.HasBases {
		return false // the commit waits, and what is wrong with it is said beside that
	}
	same, err := src.unaffected.UnchangedSince(s, applied, d.Reads)
	if err != nil || !same {
		return false
	}
	src.cached.desired = d
	return true
}
