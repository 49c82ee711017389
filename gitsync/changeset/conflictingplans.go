package changeset

import (
	"context"
	"fmt"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// conflictingPlans returns which plans of the commit do not govern their Deployments, since the
// older one of another GitSource does.
func (in *Input) conflictingPlans(ctx context.Context, targets []*apply.Target) (plan.Problems, error) {
	var ps plan.Problems
	for i, t := range targets {
		deployment := plan.WorkloadOf(&in.Governed.Set.Releases[i])
		plans, err := in.Observer.PlansFor(ctx, deployment)
		if err != nil {
			return nil, err
		}
		if len(plans) == 0 || inventory.IsOwned(&plans[0], in.Source) || plans[0].Name == t.GetName() {
			continue
		}
		from := plans[0].Labels
		if from[v1alpha1.LabelSource] == "" {
			continue // made by hand: it governs until this one is applied
		}
		fact := fmt.Sprintf("it does not govern Deployment %s: BatchRelease %s of GitSource %s/%s is older and does",
			deployment.Name, plans[0].Name, from[v1alpha1.LabelSourceNamespace], from[v1alpha1.LabelSource])
		ps = append(ps, t.Problem(v1alpha1.ReasonAnotherPlan, fact, "remove one of the two plans"))
	}
	return ps, nil
}
