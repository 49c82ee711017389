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

// await finds out whether the sources that this one depends on are as its next commit
// needs them. A commit that renders nothing new, as with an approval, waits for no
// source.
func (l *look) await(ctx context.Context, s *repository.Snapshot) (err error) {
	if len(l.gs.Spec.DependsOn) == 0 || l.isRendered(ctx, s) {
		return nil
	}
	w := dependencies.Waiter{
		Source: l.gs, Own: l.own, Cached: l.status,
		HasApplied: func(ctx context.Context, other *v1alpha1.GitSource) bool { return l.hasApplied(ctx, other, s) },
		Ask: func(ctx context.Context, other *v1alpha1.GitSource) error {
			return l.askOther(ctx, other, s.Commit.String())
		},
	}
	if l.outcome.Awaited, err = w.Lacks(ctx); err != nil {
		return err
	}
	if len(l.outcome.Awaited) > 0 && l.rendersAsApplied(ctx, s) {
		l.outcome.Awaited = nil
	}
	return nil
}

// hasApplied reports whether another source of the branch has applied a commit, or one since
// which nothing touches it. Its status need not say so. This controller knows that of the
// sources that it has looked at itself.
func (l *look) hasApplied(ctx context.Context, other *v1alpha1.GitSource, s *repository.Snapshot) bool {
	if other.Status.AppliedCommit == s.Commit.String() {
		return true
	}
	if !l.isSelected(other) {
		return false
	}
	keep := l.recall(client.ObjectKeyFromObject(other))
	if keep.rest == nil || !keep.rest.isOf(other) {
		return false
	}
	from := other.Status.AppliedCommit
	if keep.passed.isOf(other) {
		from = keep.passed.tip
	}
	if refusal, err := siblings.Refusal(ctx, l.own, s, other); err != nil || refusal != "" {
		return false // a commit that touches nothing has to be signed all the same
	}
	same, err := l.unaffected.IsUntouched(s, other, keep.desired, keep.rest.approvals, plumbing.NewHash(from))
	return err == nil && same
}

// askOther asks a source that another controller looks at for a sync: only that one knows
// whether a commit touches it. It is asked once for each commit.
func (l *look) askOther(ctx context.Context, other *v1alpha1.GitSource, commit string) error {
	asked := requests.Asked(other)
	if l.isSelected(other) || other.Status.ObservedCommit == commit || asked == commit || asked == v1alpha1.AnnotationReconcileDisabled {
		return nil
	}
	old := other.DeepCopy()
	if other.Annotations == nil {
		other.Annotations = map[string]string{}
	}
	other.Annotations[v1alpha1.AnnotationReconcile] = commit
	patch := client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}) // a user may have disabled it just now
	err := l.status.Patch(ctx, other, patch, client.FieldOwner(v1alpha1.ManagerGitSync))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("asking GitSource %s/%s for a sync: %w", other.Namespace, other.Name, err)
	}
	return nil
}

// isRendered reports whether what was rendered last, with the spec that the
// source has now, is good for a snapshot, too.
func (l *look) isRendered(ctx context.Context, s *repository.Snapshot) bool {
	same := l.gs.Status.AppliedCommit == s.Commit.String()
	r := desired.Reader{Source: l.gs, Bases: l.rendering.Bases(ctx, l.since), Folders: l.options.Renderer}
	switch {
	case l.gs.Status.AppliedCommit == "":
		return false
	case l.keep.desired == nil: // after a restart
		return apply.IsApplied(l.gs, s.Commit.String())
	case same || l.keep.desired.Key != r.Key():
		return l.keep.desired.Key == r.Key()
	}
	untouched, err := l.unaffected.UnchangedSince(s, plumbing.NewHash(l.gs.Status.AppliedCommit), l.keep.desired.Reads)
	return err == nil && untouched
}

// rendersAsApplied renders a commit after a restart, and reports whether it is as the one
// that is applied, as are all between the two.
func (l *look) rendersAsApplied(ctx context.Context, s *repository.Snapshot) bool {
	applied := plumbing.NewHash(l.gs.Status.AppliedCommit)
	if l.keep.desired != nil || !apply.IsApplied(l.gs, l.gs.Status.AppliedCommit) || s.HasEncodedObject(applied) != nil {
		return false
	}
	r := &desired.Reader{Snapshot: s, Source: l.gs, Mapper: l.mapper, Bases: l.rendering.Bases(ctx, l.since), Folders: l.rendering.Folders()}
	d, rendered, err := r.Read(nil)
	metrics.Rendered(l.name, rendered)
	if err != nil || d.HasBases {
		return false // the commit waits, and what is wrong with it is said beside that
	}
	same, err := l.unaffected.UnchangedSince(s, applied, d.Reads)
	if err != nil || !same {
		return false
	}
	l.keep.desired = d
	return true
}
