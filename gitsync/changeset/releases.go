package changeset

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/tranche-dev/tranche/gitsync/apiproblem"
	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/replay"
	"github.com/tranche-dev/tranche/gitsync/takeover"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// releases adds the BatchReleases to apply, and what of them is ignored.
func (in *Input) releases(ctx context.Context, c *Changes) (err error) {
	set, o, r := in.Governed.Set, in.Observer, in.Reader
	if c.Now, err = in.live(ctx); err != nil {
		return err
	}
	if r.Failed, err = takeover.FailedReleases(ctx, o.FailuresIn, set.Releases, c.Now); err != nil {
		return err
	}
	r.Sources = func() (*v1alpha1.GitSourceList, error) {
		err := o.ReadSources(ctx)
		return o.Sources, err
	}
	list, ignored, err := r.Releases(ctx, c.Desired, set.Releases, c.Now)
	if err != nil {
		return err
	}
	Shard(in.Selector, in.Source, list...)
	c.Then, c.Ignored = list, slices.Concat(in.Governed.Unapproved, ignored)
	targets, err := in.targetsOf(ctx, c)
	if targets == nil || err != nil {
		c.Releases = targets
		return err
	}
	conflicting, err := in.conflictingPlans(ctx, targets)
	c.Releases, c.Ignored = targets, append(c.Ignored, conflicting...)
	return err
}

// live returns the BatchReleases of the cluster that those of the commit take the place of, by
// name. The ended releases of those of the source are added to its status.
func (in *Input) live(ctx context.Context) (map[string]*v1alpha1.BatchRelease, error) {
	live, set := map[string]*v1alpha1.BatchRelease{}, in.Governed.Set
	var ours []*v1alpha1.BatchRelease
	for i := range set.Releases {
		release := &set.Releases[i]
		now, err := in.Observer.PlanOf(ctx, set, release)
		if err != nil {
			return nil, err
		}
		if now == nil {
			continue
		}
		live[plan.ReleaseName(release.Plan)] = takeover.Unclaimed(now)
		if inventory.IsOwned(now, in.Source) {
			ours = append(ours, now)
		}
	}
	replay.AddEnded(&in.Source.Status, time.Now(), ours...)
	return live, nil
}

// targetsOf observes the BatchReleases of a commit. The error has the problems of all, or is
// not about one: then there are no targets.
func (in *Input) targetsOf(ctx context.Context, c *Changes) ([]*apply.Target, error) {
	objects := make([]plan.Object, len(c.Then))
	for i, br := range c.Then {
		var err error
		if objects[i], err = apply.ReleaseObject(br, in.Governed.Set.Releases[i].File); err != nil {
			return nil, err
		}
	}
	defer in.Observer.ReadAhead(ctx, objects)()
	var targets []*apply.Target
	var ps plan.Problems
	prerequisites := in.Observer.Prerequisites
	for i, br := range c.Then {
		object := objects[i]
		pending := prerequisites[br.Namespace]
		t := &apply.Target{Object: object, Deferred: pending, NamespacePending: pending}
		if err := in.Observer.Observe(ctx, t); err != nil {
			problems := apiproblem.Of(v1alpha1.ReasonDryRunFailed, object, in.Source, err)
			if len(problems) == 0 {
				return nil, err
			}
			t.Refused, ps = true, append(ps, problems...)
		} else if err := takeover.AsJudged(br, c.Now[plan.ReleaseName(br)], t.Live); err != nil {
			return nil, err
		}
		targets = append(targets, t)
	}
	return targets, apiproblem.Or(ps, nil)
}

// Shard gives releases the labels of their source by which controllers share
// the work, so that the same one looks at both.
func Shard(selector labels.Selector, gs *v1alpha1.GitSource, releases ...*v1alpha1.BatchRelease) {
	if selector == nil {
		return
	}
	requirements, _ := selector.Requirements()
	for _, br := range releases {
		marked := maps.Clone(br.Labels)
		if marked == nil {
			marked = map[string]string{}
		}
		for _, r := range requirements {
			if value, ok := gs.Labels[r.Key()]; ok {
				marked[r.Key()] = value
			} else {
				delete(marked, r.Key())
			}
		}
		br.Labels = marked
	}
}
