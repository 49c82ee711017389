package changeset

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/prune"
	"github.com/tranche-dev/tranche/gitsync/siblings"
	"github.com/tranche-dev/tranche/gitsync/terms"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Input is a rendered commit, and how to read the cluster's side of it.
type Input struct {
	// Source is the GitSource. Releases that have ended are added to its status.
	Source *v1alpha1.GitSource
	// Desired is what the commit says, as Reader has read it. Governed is what of it counts.
	// Invalid is what is wrong with the rest of it.
	Desired  *desired.State
	Invalid  plan.Problems
	Reader   *desired.Reader
	Governed *terms.Governed
	Observer *apply.Observer
	// Own reads past the cache.
	Own      client.Reader
	Siblings siblings.Access
	// Selector picks the GitSources of this controller; nil: all.
	Selector labels.Selector
}

// Changes are what is to be done for one commit.
type Changes struct {
	Desired *desired.State
	// Partial: a part of the commit is not valid, and Desired has only the rest.
	Partial bool
	Reader  *desired.Reader
	// Governed is what of Desired counts, and is applied.
	Governed *terms.Governed
	// Targets are the objects, and Releases the BatchReleases.
	Targets, Releases []*apply.Target
	// Wanted is the inventory once all is applied.
	Wanted inventory.Set
	Heirs  siblings.Heirs
	// Replaced are the BatchReleases that others have taken over from.
	Replaced inventory.Set
	// Then are the BatchReleases of Releases as the commit has them, and Now, by name,
	// those of the cluster that they take the place of.
	Then []*v1alpha1.BatchRelease
	Now  map[string]*v1alpha1.BatchRelease
	// Ignored is what is left out and does no harm. Withheld are the objects that a signer has
	// to approve first.
	Ignored  plan.Problems
	Withheld []string
}

// All returns the targets in the order of application.
func (c *Changes) All() []*apply.Target { return slices.Concat(c.Targets, c.Releases) }

// Quiet reports whether the commit has no approval of its releases, and nothing of it is left
// out.
func (c *Changes) Quiet() bool {
	approved := func(br *v1alpha1.BatchRelease) bool { return br.Spec.Approval != nil }
	return len(c.Ignored) == 0 && len(c.Withheld) == 0 && !slices.ContainsFunc(c.Then, approved)
}

// Prepare reads the cluster's side of a commit. If the commit has problems, they are the error,
// and the changes are returned with them.
func Prepare(ctx context.Context, in Input) (*Changes, error) {
	c := &Changes{
		Desired: in.Desired, Reader: in.Reader, Governed: in.Governed, Wanted: inventory.Set{}, Replaced: inventory.Set{},
		Withheld: in.Governed.Withheld, Partial: len(in.Invalid) > 0,
	}
	targets, refused := in.Observer.Targets(ctx, in.Governed.Set)
	if refused != nil && len(plan.ProblemsOf(refused)) == 0 {
		return nil, refused
	}
	c.Targets = targets
	err := in.releases(ctx, c)
	if err != nil && (c.Releases == nil || len(plan.ProblemsOf(err)) == 0) {
		return nil, err
	}
	c.leaveAlone()
	if ps := slices.Concat(in.Invalid, plan.ProblemsOf(refused), plan.ProblemsOf(err)); len(ps) > 0 {
		return c, ps
	}
	c.Wanted = c.Governed.Keeps.Union(c.Wanted)
	for _, t := range c.All() {
		c.Wanted.Add(t.Entry())
	}
	if c.Heirs, err = in.Siblings.HeirsOf(ctx, in.Source, in.Reader.Snapshot, c.Wanted); err != nil {
		return nil, err
	}
	unresumed, err := in.Siblings.Unresumed(ctx, in.Source, in.Reader.Snapshot, c.Wanted, c.Heirs)
	if err != nil {
		return nil, err
	}
	c.Ignored = append(c.Ignored, unresumed...)
	elsewhere, err := desired.Elsewhere(ctx, in.Reader.Snapshot, in.Reader.Snapshot.Commit, in.Source)
	if err != nil {
		return nil, err
	}
	return c, prune.CheckLimit(ctx, in.Observer.As, prune.Change{
		Source: in.Source, Before: inventory.Read(in.Source.Status.Inventory), Wanted: c.Heirs.Certain().Union(c.Wanted),
		Releases: c.Governed.Set.Releases, Unclear: c.Heirs.Unclear(), Commit: c.Desired.Commit, Elsewhere: elsewhere,
	})
}
