package takeover

import (
	"context"

	"github.com/tranche-dev/tranche/gitsync/lists"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// FailedReleases returns, by name, the releases whose BatchRelease is to be made again, and
// whose template has failed on the Deployment before. The remains of their BatchRelease show
// it, as far as the reader may see them: read returns those of a namespace. So they have the
// commit that failed, and not the tip of the branch.
func FailedReleases(
	ctx context.Context, read func(ctx context.Context, namespace string) (lists.Failures, error),
	releases []plan.Release, live map[string]*v1alpha1.BatchRelease,
) (map[string]*v1alpha1.BatchRelease, error) {
	found, of := map[string]*v1alpha1.BatchRelease{}, map[string]lists.Failures{}
	for i := range releases {
		r := &releases[i]
		if live[plan.ReleaseName(r.Plan)] != nil {
			continue
		}
		workload := plan.WorkloadOf(r)
		failures, known := of[workload.Namespace]
		if !known {
			var err error
			if failures, err = read(ctx, workload.Namespace); err != nil {
				return nil, err
			}
			of[workload.Namespace] = failures
		}
		for _, c := range failures[workload.Name] {
			f, err := plan.ReadFailure(c)
			if err != nil {
				return nil, err
			}
			if f.Digest == plan.TemplateDigest(r.Template) {
				found[plan.ReleaseName(r.Plan)] = &v1alpha1.BatchRelease{Spec: v1alpha1.BatchReleaseSpec{Template: r.Template, Commit: f.Commit}}
			}
		}
	}
	return found, nil
}
