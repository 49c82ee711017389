package doctor

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// checkSources looks for GitSources that are not applied or not synced.
func (e *exam) checkSources(ctx context.Context) []Finding {
	const check = "source"
	sources, err := e.Sources(ctx, e.namespace)
	if err != nil {
		return []Finding{unknown(check, "", err)}
	}
	var list []Finding
	suspended := 0
	for i := range sources {
		gs := &sources[i]
		if gs.Spec.Suspend {
			suspended++
		} else if f, ok := examineSource(gs); ok {
			f.Check, f.Object = check, "GitSource "+gs.Namespace+"/"+gs.Name
			list = append(list, f)
		}
	}
	ready := len(sources) - suspended - len(list)
	summary := Finding{Result: OK, Check: check,
		Message: fmt.Sprintf("%d of %s ready, %d suspended", ready, number(len(sources), "GitSource"), suspended)}
	if ready > 0 && e.leads != OK && e.leads != Warning {
		summary.Result = Unknown
		summary.Message += "; their conditions may be old, since no controller is known to work"
		summary.Todo = "see the check of the leader"
	}
	return append([]Finding{summary}, limited(list, "tranche get sources -A")...)
}

// examineSource returns what is wrong with a source, and false if nothing is.
func examineSource(gs *v1alpha1.GitSource) (Finding, bool) {
	ready := cli.ReadyOf(gs)
	describe := fmt.Sprintf("see kubectl -n %s describe gitsource %s", gs.Namespace, gs.Name)
	switch {
	case ready.Status == metav1.ConditionFalse, ready.Reason == v1alpha1.ReasonNotSynced:
		return Finding{Result: Problem, Message: ready.Reason + ": " + plan.OneLine(ready.Message), Todo: describe}, true
	case ready.Status != metav1.ConditionTrue:
		return Finding{Result: Warning, Message: "no controller has synced it yet", Todo: describe}, true
	}
	if p := cli.ProblemOf(gs); p != nil {
		return Finding{Result: Warning, Message: p.Reason + ": " + plan.OneLine(p.Message), Todo: describe}, true
	}
	return Finding{}, false
}

// checkReleases looks for BatchReleases that are Stalled.
func (e *exam) checkReleases(ctx context.Context) []Finding {
	const check = "release"
	releases, err := e.Releases(ctx, e.namespace)
	if err != nil {
		return []Finding{unknown(check, "", err)}
	}
	var list []Finding
	for i := range releases {
		br := &releases[i]
		if c := meta.FindStatusCondition(br.Status.Conditions, v1alpha1.ConditionStalled); c != nil && c.Status == metav1.ConditionTrue {
			list = append(list, Finding{Result: Problem, Check: check, Object: "BatchRelease " + br.Namespace + "/" + br.Name,
				Message: c.Reason + ": " + plan.OneLine(c.Message), Todo: fmt.Sprintf("see tranche status %s -n %s", br.Name, br.Namespace)})
		}
	}
	summary := Finding{Result: OK, Check: check, Message: fmt.Sprintf("%s, %d stalled", number(len(releases), "BatchRelease"), len(list))}
	return append([]Finding{summary}, limited(list, "tranche get -A")...)
}

// checkHeld looks for held Deployments that no BatchRelease is for.
func (e *exam) checkHeld(ctx context.Context) []Finding {
	const check = "held"
	held, err := e.Held(ctx, e.namespace)
	if err != nil {
		return []Finding{unknown(check, "", err)}
	}
	releases, err := e.Releases(ctx, e.namespace)
	if err != nil {
		return []Finding{unknown(check, "", err)}
	}
	governed := map[string]bool{}
	for i := range releases {
		governed[releases[i].Namespace+"/"+releases[i].Spec.WorkloadRef.Name] = true
	}
	var list []Finding
	for _, d := range held {
		if !governed[d] {
			list = append(list, Finding{Result: Problem, Check: check, Object: "Deployment " + d,
				Message: "it is held, and no BatchRelease is for it",
				Todo:    "see whether a controller works, which hands it back; else docs/operating.md, When a hand-back fails"})
		}
	}
	summary := Finding{Result: OK, Check: check, Message: fmt.Sprintf("%s held, %d of them without a BatchRelease",
		number(len(held), "Deployment"), len(list))}
	return append([]Finding{summary}, limited(list, "kubectl get deployments -A -l "+v1alpha1.LabelHeld)...)
}
