package gitsync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/metrics"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/siblings"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// indexDependsOn finds sources by what they depend on.
const indexDependsOn = "tranche.dev/depends-on"

// dependenciesOf are the sources that one depends on, in its order.
func dependenciesOf(gs *v1alpha1.GitSource) []types.NamespacedName {
	var names []types.NamespacedName
	for _, d := range gs.Spec.DependsOn {
		names = append(names, types.NamespacedName{Namespace: cmp.Or(d.Namespace, gs.Namespace), Name: d.Name})
	}
	return names
}

func dependsOn(o client.Object) []string {
	gs, ok := o.(*v1alpha1.GitSource)
	if !ok {
		return nil
	}
	var names []string
	for _, name := range dependenciesOf(gs) {
		names = append(names, name.String())
	}
	return names
}

// dependents maps a source to those that depend on it.
func (r *reconciler) dependents(ctx context.Context, o client.Object) []reconcile.Request {
	var sources v1alpha1.GitSourceList
	if err := r.status.List(ctx, &sources, client.MatchingFields{indexDependsOn: client.ObjectKeyFromObject(o).String()}); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "mapping a GitSource to those that depend on it")
		return nil
	}
	return r.requestsFor(&sources)
}

// comesReady passes a source that may be now what another one waits for.
var comesReady = predicate.Funcs{
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.GitSource)
		after, is := e.ObjectNew.(*v1alpha1.GitSource)
		return ok && is && isReady(after) && (!isReady(before) || before.Status.AppliedCommit != after.Status.AppliedCommit)
	},
}

// isReady reports whether a source is ready with the spec that it has now.
func isReady(gs *v1alpha1.GitSource) bool {
	return gs.Status.ObservedGeneration == gs.Generation && meta.IsStatusConditionTrue(gs.Status.Conditions, v1alpha1.ConditionReady)
}

// mayDependOn refuses references into other namespaces: no other tenant may learn
// whether there is such a source, and how it is.
func (o Options) mayDependOn(gs *v1alpha1.GitSource) error {
	for i, name := range dependenciesOf(gs) {
		if o.NoCrossNamespaceRefs && name.Namespace != gs.Namespace {
			return &plan.Problem{
				Reason: v1alpha1.ReasonCrossNamespaceReference, Where: fmt.Sprintf("spec.dependsOn[%d].namespace", i),
				Err: fmt.Errorf("%s is not the namespace of this GitSource", name.Namespace), Hint: "depend on sources of the same namespace, or start the controller with --no-cross-namespace-refs=false",
			}
		}
	}
	return nil
}

// await finds out whether the sources that this one depends on are as its next commit
// needs them. A commit that renders nothing new, as with an approval, waits for no
// source.
func (l *look) await(ctx context.Context, s *repository.Snapshot) error {
	if len(l.gs.Spec.DependsOn) == 0 || l.isRendered(ctx, s) {
		return nil
	}
	if err := l.refuseCycle(ctx); err != nil {
		return err
	}
	for _, name := range dependenciesOf(l.gs) {
		var other v1alpha1.GitSource
		err := l.own.Get(ctx, name, &other)
		switch {
		case apierrors.IsNotFound(err):
			l.outcome.awaited = append(l.outcome.awaited, "there is no GitSource "+name.String()+"; create it, or take it out of spec.dependsOn")
		case err != nil:
			return fmt.Errorf("getting GitSource %s: %w", name, err)
		default:
			lacks, err := l.lacks(ctx, &other, s)
			if err != nil {
				return err
			}
			if lacks != "" {
				l.outcome.awaited = append(l.outcome.awaited, "GitSource "+name.String()+" "+lacks)
			}
		}
	}
	if len(l.outcome.awaited) > 0 && l.rendersAsApplied(ctx, s) {
		l.outcome.awaited = nil
	}
	return nil
}

// lacks says why a source that another one depends on is not as that one's next commit
// needs it. It also says what to do where that does not pass by itself. Empty: the
// source is as needed.
func (l *look) lacks(ctx context.Context, other *v1alpha1.GitSource, s *repository.Snapshot) (string, error) {
	fact := ""
	switch {
	case !isReady(other):
		fact = "is not ready"
		if ready := meta.FindStatusCondition(other.Status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.Status != metav1.ConditionTrue {
			fact += " (" + ready.Reason + ")"
		}
	// The next sync has a newer commit than ours, too, unless the branch was set back.
	// Then the other source has to go back first.
	case desired.SameBranch(other, l.gs) && !l.hasApplied(ctx, other, s):
		fact = "has not applied it yet"
	default:
		return "", nil
	}
	switch {
	case other.DeletionTimestamp != nil:
		return fact + " and is being deleted; take it out of spec.dependsOn, or create it again", nil
	case other.Spec.Suspend:
		return fact + " and is suspended; set its spec.suspend to false, or take it out of spec.dependsOn", nil
	case isReady(other):
		return fact, l.askOther(ctx, other, s.Commit.String())
	default:
		return fact, nil
	}
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
	same, err := l.isUntouched(s, other, &keep, plumbing.NewHash(from))
	return err == nil && same
}

// askOther asks a source that another controller looks at for a sync: only that one knows
// whether a commit touches it. It is asked once for each commit.
func (l *look) askOther(ctx context.Context, other *v1alpha1.GitSource, commit string) error {
	if l.isSelected(other) || other.Status.ObservedCommit == commit || asked(other) == commit || asked(other) == v1alpha1.AnnotationReconcileDisabled {
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
	r := desired.Reader{Source: l.gs, Bases: l.bases(ctx), Folders: l.options.Renderer}
	switch {
	case l.gs.Status.AppliedCommit == "":
		return false
	case l.keep.desired == nil: // after a restart
		return apply.IsApplied(l.gs, s.Commit.String())
	case same || l.keep.desired.Key != r.Key():
		return l.keep.desired.Key == r.Key()
	}
	untouched, err := l.unchangedSince(s, plumbing.NewHash(l.gs.Status.AppliedCommit), l.keep.desired.Reads)
	return err == nil && untouched
}

// rendersAsApplied renders a commit after a restart, and reports whether it is as the one
// that is applied, as are all between the two.
func (l *look) rendersAsApplied(ctx context.Context, s *repository.Snapshot) bool {
	applied := plumbing.NewHash(l.gs.Status.AppliedCommit)
	if l.keep.desired != nil || !apply.IsApplied(l.gs, l.gs.Status.AppliedCommit) || s.HasEncodedObject(applied) != nil {
		return false
	}
	r := &desired.Reader{Snapshot: s, Source: l.gs, Mapper: l.mapper, Bases: l.bases(ctx), Folders: l.rendersIn()}
	d, rendered, err := r.Read(nil)
	metrics.Rendered(l.name, rendered)
	if err != nil || d.HasBases {
		return false // the commit waits, and what is wrong with it is said beside that
	}
	same, err := l.unchangedSince(s, applied, d.Reads)
	if err != nil || !same {
		return false
	}
	l.keep.desired = d
	return true
}

// refuseCycle refuses sources that wait for each other.
func (l *look) refuseCycle(ctx context.Context) error {
	way, err := l.wayBack(ctx, l.gs, []types.NamespacedName{l.name}, map[types.NamespacedName]bool{})
	if err != nil || way == nil {
		return err
	}
	var said []string
	for _, name := range way {
		said = append(said, name.String())
	}
	return &plan.Problem{
		Reason: v1alpha1.ReasonDependencyCycle, Where: "spec.dependsOn", Err: errors.New("GitSources wait for each other: " + strings.Join(said, " → ")),
		Hint: "remove one of the dependencies",
	}
}

// wayBack returns the way along dependencies that leads from a source back to
// the first one of the way so far; nil: there is none.
func (l *look) wayBack(ctx context.Context, gs *v1alpha1.GitSource, way []types.NamespacedName, seen map[types.NamespacedName]bool) ([]types.NamespacedName, error) {
	for _, name := range dependenciesOf(gs) {
		if name == way[0] {
			return append(way, name), nil
		}
		if seen[name] {
			continue
		}
		seen[name] = true
		var next v1alpha1.GitSource
		if err := l.status.Get(ctx, name, &next); err != nil {
			if apierrors.IsNotFound(err) {
				continue
			}
			return nil, fmt.Errorf("getting GitSource %s: %w", name, err)
		}
		if found, err := l.wayBack(ctx, &next, append(way[:len(way):len(way)], name), seen); err != nil || found != nil {
			return found, err
		}
	}
	return nil, nil
}
