// Package render renders commits of a clone, as the controller will.
package render

import (
	"cmp"
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
	With   map[string]bool // BatchReleases that may change, too: namespace/name
}

// NotAloneError is that of a change of more than a release, on a branch with invalid objects.
type NotAloneError struct {
	Release string
	Invalid plan.Problems
}

func (e *NotAloneError) Error() string {
	return fmt.Sprintf("%s; correct that first, since the change is not of %s alone", e.Invalid.Error(), e.Release)
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
// nothing but the release, and those of With, since Made does not see what else the change
// would move. The error then is [NotAloneError], beside the set.
func (r Release) Made(ctx context.Context, commit string) (*plan.Set, *gittree.Tree, error) {
	set, tree, invalid := Commit(r.Clone, r.Source, commit)
	if !r.isOfOthers(set, tree, invalid) {
		return set, tree, invalid
	}
	head, err := r.Clone.Head(ctx)
	if err != nil {
		return nil, nil, err
	}
	mayChange := r.objectsOf(set)
	before, err := r.beside(head, mayChange)
	if err != nil {
		return nil, nil, err
	}
	after, err := r.beside(commit, mayChange)
	if err != nil {
		return nil, nil, err
	}
	if !equality.Semantic.DeepEqual(before, after) {
		return set, tree, &NotAloneError{r.Namespace + "/" + r.Name, plan.ProblemsOf(invalid)}
	}
	return set, tree, nil
}

// isOfOthers reports whether an error is about other objects than those of the release.
func (r Release) isOfOthers(set *plan.Set, tree *gittree.Tree, err error) bool {
	return len(plan.ProblemsOf(err)) > 0 && set != nil && tree.Err() == nil && slices.ContainsFunc(set.Releases, func(one plan.Release) bool {
		return one.Plan.Namespace == r.Namespace && one.Plan.Name == r.Name
	})
}

// named is an object as a user names it.
type named struct{ kind, namespace, name string }

// objectsOf are the plans and Deployments of the release and of those of With.
func (r Release) objectsOf(set *plan.Set) map[named]bool {
	found := map[named]bool{}
	for i := range set.Releases {
		p := set.Releases[i].Plan
		if p.Namespace == r.Namespace && p.Name == r.Name || r.With[p.Namespace+"/"+p.Name] {
			found[named{"BatchRelease", p.Namespace, p.Name}] = true
			found[named{"Deployment", p.Namespace, p.Spec.WorkloadRef.Name}] = true
		}
	}
	return found
}

// beside returns what a commit renders beside some objects.
func (r Release) beside(commit string, without map[named]bool) ([]plan.Object, error) {
	all, _, err := objects(r.Clone, r.Source, commit)
	return slices.DeleteFunc(all, func(o plan.Object) bool {
		namespace := cmp.Or(r.Source.Spec.TargetNamespace, o.GetNamespace(), r.Source.Namespace)
		return without[named{o.GetKind(), namespace, o.GetName()}]
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
