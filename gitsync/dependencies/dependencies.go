package dependencies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Index finds sources by what they depend on, see [Indexed].
const Index = "tranche.dev/depends-on"

// Of are the sources that one depends on, in its order.
func Of(gs *v1alpha1.GitSource) []types.NamespacedName {
	var names []types.NamespacedName
	for _, d := range gs.Spec.DependsOn {
		names = append(names, types.NamespacedName{Namespace: cmp.Or(d.Namespace, gs.Namespace), Name: d.Name})
	}
	return names
}

// Indexed returns the names under which a source is found.
func Indexed(o client.Object) []string {
	gs, ok := o.(*v1alpha1.GitSource)
	if !ok {
		return nil
	}
	var names []string
	for _, name := range Of(gs) {
		names = append(names, name.String())
	}
	return names
}

// ComesReady passes a source that may be now what another one waits for.
var ComesReady = predicate.Funcs{
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.GitSource)
		after, is := e.ObjectNew.(*v1alpha1.GitSource)
		return ok && is && IsReady(after) && (!IsReady(before) || before.Status.AppliedCommit != after.Status.AppliedCommit)
	},
}

// IsReady reports whether a source is ready with the spec that it has now.
func IsReady(gs *v1alpha1.GitSource) bool {
	return gs.Status.ObservedGeneration == gs.Generation && meta.IsStatusConditionTrue(gs.Status.Conditions, v1alpha1.ConditionReady)
}

// RefuseOtherNamespaces refuses references into other namespaces: no other tenant may learn
// whether there is such a source, and how it is.
func RefuseOtherNamespaces(gs *v1alpha1.GitSource) error {
	for i, name := range Of(gs) {
		if name.Namespace != gs.Namespace {
			return &plan.Problem{
				Reason: v1alpha1.ReasonCrossNamespaceReference, Where: fmt.Sprintf("spec.dependsOn[%d].namespace", i),
				Err:  fmt.Errorf("%s is not the namespace of this GitSource", name.Namespace),
				Hint: "depend on sources of the same namespace, or start the controller with --no-cross-namespace-refs=false",
			}
		}
	}
	return nil
}

// Waiter is a source that depends on others.
type Waiter struct {
	Source *v1alpha1.GitSource
	// Own reads as the controller. Cached does so from its cache.
	Own, Cached client.Reader
	// HasApplied reports whether another source of the branch has applied the commit that the
	// source is to apply next. Ask asks such a source for a sync.
	HasApplied func(ctx context.Context, other *v1alpha1.GitSource) bool
	Ask        func(ctx context.Context, other *v1alpha1.GitSource) error
}

// Lacks says of each source that this one depends on why it is not as the next commit needs
// it. It also says what to do where that does not pass by itself. The error is a
// [plan.Problem] where sources wait for each other.
func (w *Waiter) Lacks(ctx context.Context) ([]string, error) {
	if err := w.refuseCycle(ctx); err != nil {
		return nil, err
	}
	var lacking []string
	for _, name := range Of(w.Source) {
		var other v1alpha1.GitSource
		err := w.Own.Get(ctx, name, &other)
		switch {
		case apierrors.IsNotFound(err):
			lacking = append(lacking, "there is no GitSource "+name.String()+"; create it, or take it out of spec.dependsOn")
		case err != nil:
			return nil, fmt.Errorf("getting GitSource %s: %w", name, err)
		default:
			lacks, err := w.lacks(ctx, &other)
			if err != nil {
				return nil, err
			}
			if lacks != "" {
				lacking = append(lacking, "GitSource "+name.String()+" "+lacks)
			}
		}
	}
	return lacking, nil
}

// lacks says it of one source. Empty: the source is as needed.
func (w *Waiter) lacks(ctx context.Context, other *v1alpha1.GitSource) (string, error) {
	fact := ""
	switch {
	case !IsReady(other):
		fact = "is not ready"
		ready := meta.FindStatusCondition(other.Status.Conditions, v1alpha1.ConditionReady)
		if ready != nil && ready.Status != metav1.ConditionTrue {
			fact += " (" + ready.Reason + ")"
		}
	// The next sync has a newer commit than ours, too, unless the branch was set back.
	// Then the other source has to go back first.
	case desired.SameBranch(other, w.Source) && !w.HasApplied(ctx, other):
		fact = "has not applied it yet"
	default:
		return "", nil
	}
	switch {
	case other.DeletionTimestamp != nil:
		return fact + " and is being deleted; take it out of spec.dependsOn, or create it again", nil
	case other.Spec.Suspend:
		return fact + " and is suspended; set its spec.suspend to false, or take it out of spec.dependsOn", nil
	case IsReady(other):
		return fact, w.Ask(ctx, other)
	default:
		return fact, nil
	}
}

// refuseCycle refuses sources that wait for each other.
func (w *Waiter) refuseCycle(ctx context.Context) error {
	way, err := w.wayBack(ctx, w.Source, []types.NamespacedName{client.ObjectKeyFromObject(w.Source)}, map[types.NamespacedName]bool{})
	if err != nil || way == nil {
		return err
	}
	var said []string
	for _, name := range way {
		said = append(said, name.String())
	}
	return &plan.Problem{
		Reason: v1alpha1.ReasonDependencyCycle, Where: "spec.dependsOn",
		Err:  errors.New("GitSources wait for each other: " + strings.Join(said, " → ")),
		Hint: "remove one of the dependencies",
	}
}

// wayBack returns the way along dependencies that leads from a source back to
// the first one of the way so far; nil: there is none.
func (w *Waiter) wayBack(
	ctx context.Context, gs *v1alpha1.GitSource, way []types.NamespacedName, seen map[types.NamespacedName]bool,
) ([]types.NamespacedName, error) {
	for _, name := range Of(gs) {
		if name == way[0] {
			return append(way, name), nil
		}
		if seen[name] {
			continue
		}
		seen[name] = true
		var next v1alpha1.GitSource
		if err := w.Cached.Get(ctx, name, &next); err != nil {
			if apierrors.IsNotFound(err) {
				continue
			}
			return nil, fmt.Errorf("getting GitSource %s: %w", name, err)
		}
		if found, err := w.wayBack(ctx, &next, append(way[:len(way):len(way)], name), seen); err != nil || found != nil {
			return found, err
		}
	}
	return nil, nil
}
