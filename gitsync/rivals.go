package gitsync

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// disinherit takes from the BatchRelease of a target what it may not hand on, and says so.
func (l *look) disinherit(ctx context.Context, a *applier, c *commit, t *target) error {
	taken, err := claim{a, l.own, l.status}.disinherit(ctx, t, c.now[t.GetNamespace()+"/"+t.GetName()])
	if taken != nil {
		l.tellOf(t.Unstructured, corev1.EventTypeWarning, taken.reason, taken.message)
	}
	return err
}

// tellRivals says which plans of the commit do not govern their Deployments, since the
// older one of another GitSource does.
func (l *look) tellRivals(ctx context.Context, o *observer, targets []*target, releases []plan.Release) error {
	for i, t := range targets {
		deployment := plan.WorkloadOf(&releases[i])
		plans, err := o.plansFor(ctx, deployment)
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
		l.outcome.ignored = append(l.outcome.ignored, t.problem(v1alpha1.ReasonAnotherPlan, fact, "remove one of the two plans"))
	}
	return nil
}
