package gitsync

import (
	"context"
	"fmt"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// tellRivals says which plans of the commit do not govern their Deployments, since the
// older one of another GitSource does.
func (l *look) tellRivals(ctx context.Context, o *apply.Observer, targets []*apply.Target, releases []plan.Release) error {
	for i, t := range targets {
		deployment := plan.WorkloadOf(&releases[i])
		plans, err := o.PlansFor(ctx, deployment)
		if err != nil {
			return err
		}
		if len(plans) == 0 || inventory.IsOwned(&plans[0], l.gs) || plans[0].Name == t.GetName() {
			continue
		}
		from := plans[0].Labels
		if from[v1alpha1.LabelSource] == "" {
			continue // made by hand: it governs until this one is applied
		}
		fact := fmt.Sprintf("it does not govern Deployment %s: BatchRelease %s of GitSource %s/%s is older and does",
			deployment.Name, plans[0].Name, from[v1alpha1.LabelSourceNamespace], from[v1alpha1.LabelSource])
		l.outcome.Ignored = append(l.outcome.Ignored, t.Problem(v1alpha1.ReasonAnotherPlan, fact, "remove one of the two plans"))
	}
	return nil
}
