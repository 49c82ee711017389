package gitsync

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// disinherit takes from the BatchRelease of a target what it may not hand on, and says so.
func (l *look) disinherit(ctx context.Context, a *apply.Applier, c *commit, t *apply.Target) error {
	taken, err := apply.Takeover{Applier: a, Own: l.own, Status: l.status}.Disinherit(ctx, t, c.now[t.GetNamespace()+"/"+t.GetName()])
	if taken != nil {
		l.tellOf(t.Unstructured, corev1.EventTypeWarning, taken.Reason, taken.Message)
	}
	return err
}

// replacePlan lets one BatchRelease take over from another. It returns false if the successor
// is not in the cluster.
func (l *look) replacePlan(ctx context.Context, old inventory.Entry, successor types.NamespacedName) (bool, error) {
	a := &apply.Applier{Source: l.gs, Client: l.as}
	done, err := apply.Takeover{Applier: a, Own: l.own, Status: l.status}.Replace(ctx, old, successor)
	if done && err == nil {
		l.log.Info("deleted", "object", old.String(), "commit", l.outcome.commit, "because", "BatchRelease "+successor.String()+" has taken over from it")
	}
	return done, err
}

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
		l.outcome.ignored = append(l.outcome.ignored, t.Problem(v1alpha1.ReasonAnotherPlan, fact, "remove one of the two plans"))
	}
	return nil
}
