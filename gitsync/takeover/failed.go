package takeover

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// FailedReleases returns, by name, the releases whose BatchRelease is to be made again, and
// whose template has failed on the Deployment before. The remains of their BatchRelease show
// it, as far as the reader may see them. So they have the commit that failed, and not the
// tip of the branch.
func FailedReleases(
	ctx context.Context, from client.Reader, releases []plan.Release, live map[string]*v1alpha1.BatchRelease,
) (map[string]*v1alpha1.BatchRelease, error) {
	found, read := map[string]*v1alpha1.BatchRelease{}, map[string]*appsv1.ControllerRevisionList{}
	for i := range releases {
		r := &releases[i]
		if live[plan.ReleaseName(r.Plan)] != nil {
			continue
		}
		workload := plan.WorkloadOf(r)
		list := read[workload.Namespace]
		if list == nil {
			list = &appsv1.ControllerRevisionList{}
			ours := client.MatchingLabels{plan.LabelManagedBy: plan.ManagedBy}
			if err := from.List(ctx, list, client.InNamespace(workload.Namespace), ours); err != nil {
				return nil, fmt.Errorf("listing the ControllerRevisions of %s: %w", workload.Namespace, err)
			}
			read[workload.Namespace] = list
		}
		for j := range list.Items {
			owner := metav1.GetControllerOf(&list.Items[j])
			if !plan.IsFailure(&list.Items[j]) || owner == nil || owner.Name != workload.Name {
				continue
			}
			f, err := plan.ReadFailure(&list.Items[j])
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
