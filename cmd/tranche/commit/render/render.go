// Package render renders commits of a clone, as the controller will.
package render

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/tranche-dev/tranche/cmd/tranche/clone"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/queries"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Release is a release whose source follows the branch of a clone. The controller counts
// approvals, roll-backs and pauses beside invalid objects of others, so these are no error.
type Release struct {
	*v1alpha1.BatchRelease
	Source *v1alpha1.GitSource
	Clone  *clone.Clone
}

// Set renders a commit. Beside invalid objects the set lacks their releases, and is not one to
// apply. If the release itself is invalid, Set fails.
func (r Release) Set(commit string) (*plan.Set, *gittree.Tree, error) {
	set, tree, err := Commit(r.Clone, r.Source, commit)
	if r.isOfOthers(set, tree, err) {
		err = nil
	}
	return set, tree, err
}

// Made renders a commit that is to be made on HEAD. Beside invalid objects it may change
// nothing but the release, since Made does not see what else the change would move.
func (r Release) Made(ctx context.Context, commit string) (*plan.Set, *gittree.Tree, error) {
	set, tree, invalid := Commit(r.Clone, r.Source, commit)
	if !r.isOfOthers(set, tree, invalid) {
		return set, tree, invalid
	}
	head, err := r.Clone.Head(ctx)
	if err != nil {
		return nil, nil, err
	}
	before, err := r.beside(head)
	if err != nil {
		return nil, nil, err
	}
	after, err := r.beside(commit)
	if err != nil {
		return nil, nil, err
	}
	if !equality.Semantic.DeepEqual(before, after) {
		return nil, nil, fmt.Errorf("%w; correct that first, since the change is not of %s/%s alone", invalid, r.Namespace, r.Name)
	}
	return set, tree, nil
}

// isOfOthers reports whether an error is about other objects than those of the release.
func (r Release) isOfOthers(set *plan.Set, tree *gittree.Tree, err error) bool {
	return len(plan.ProblemsOf(err)) > 0 && set != nil && tree.Err() == nil && slices.ContainsFunc(set.Releases, func(one plan.Release) bool {
		return one.Plan.Namespace == r.Namespace && one.Plan.Name == r.Name
	})
}

// beside returns what a commit renders beside the release's plan and its Deployment.
func (r Release) beside(commit string) ([]plan.Object, error) {
	all, _, err := objects(r.Clone, r.Source, commit)
	return slices.DeleteFunc(all, func(o plan.Object) bool {
		if ns := o.GetNamespace(); ns != "" && ns != r.Namespace && r.Source.Spec.TargetNamespace == "" {
			return false
		}
		return o.GetKind() == "BatchRelease" && o.GetName() == r.Name || o.GetKind() == "Deployment" && o.GetName() == r.Spec.WorkloadRef.Name
	}), err
}

// Commit renders a commit of a clone for a source. The tree knows what was read, also where
// that does not render. The set beside [plan.Problems] is that of [plan.Collect].
func Commit(in *clone.Clone, gs *v1alpha1.GitSource, commit string) (*plan.Set, *gittree.Tree, error) {
	all, tree, err := objects(in, gs, commit)
	if err != nil {
		return nil, tree, err
	}
	set, err := plan.Collect(all, plan.CollectOptions{
		Namespace: gs.Namespace, TargetNamespace: gs.Spec.TargetNamespace, Namespaced: manifest.Namespaced, CheckMetric: queries.Check,
	})
	return set, tree, errors.Join(err, tree.Err())
}

// objects are those of a commit, as its files have them.
func objects(in *clone.Clone, gs *v1alpha1.GitSource, commit string) ([]plan.Object, *gittree.Tree, error) {
	git, err := in.Objects()
	if err != nil {
		return nil, nil, err
	}
	tree, err := gittree.Open(git, plumbing.NewHash(commit))
	if err != nil {
		return nil, nil, err
	}
	all, err := manifest.Render(tree, gs.Spec.Path, manifest.RenderOptions{Skip: gs.Spec.ApprovalsPath()})
	return all, tree, err
}
