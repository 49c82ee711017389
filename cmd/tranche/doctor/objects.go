package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/view"
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
		if gs.Spec.Suspend && gs.DeletionTimestamp == nil {
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
	case gs.DeletionTimestamp != nil:
		return examineDeletion(gs), true
	case ready.Status == metav1.ConditionFalse, ready.Reason == v1alpha1.ReasonNotSynced:
		return Finding{Result: Problem, Message: ready.Reason + ": " + plan.OneLine(ready.Message), Todo: describe}, true
	case ready.Status != metav1.ConditionTrue && gs.Status.ObservedCommit != "": // such as one that waits for readiness
		return Finding{Result: OK, Message: cmp.Or(ready.Reason, "Unknown") + ": " + plan.OneLine(ready.Message)}, true
	case ready.Status != metav1.ConditionTrue:
		return Finding{Result: Warning, Message: "no controller has synced it yet", Todo: describe}, true
	}
	if p := cli.ProblemOf(gs); p != nil {
		return Finding{Result: Warning, Message: p.Reason + ": " + plan.OneLine(p.Message), Todo: describe}, true
	}
	return Finding{}, false
}

// examineDeletion says what a deletion will do that waits for a controller.
func examineDeletion(gs *v1alpha1.GitSource) Finding {
	message := "it was deleted at " + gs.DeletionTimestamp.UTC().Format(time.RFC3339) + ", and goes as soon as a controller works for it"
	if gs.Spec.Suspend {
		return Finding{Result: Warning, Message: message + "; what it applied stays, BatchReleases too, since it is suspended",
			Todo: "create it again once it is gone"}
	}
	message += "; its BatchReleases go with it, so releases under way go to 100 % without their gates"
	if gs.Spec.Prune {
		message += ", and the objects that it applied are deleted"
	}
	return Finding{Result: Problem, Message: message,
		Todo: fmt.Sprintf(`to keep all of that, kubectl -n %s patch gitsource %s --type=merge -p '{"spec":{"suspend":true}}', `+
			"and see docs/install.md, Taking a removal back", gs.Namespace, gs.Name)}
}

// checkReleases looks for BatchReleases that are Stalled, and for those whose GitSource is gone.
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
	return append([]Finding{summary}, limited(append(withoutSource(ctx, e, releases), list...), "tranche get -A")...)
}

// withoutSource is a finding for each GitSource that is gone and has left BatchReleases.
func withoutSource(ctx context.Context, e *exam, releases []v1alpha1.BatchRelease) []Finding {
	of := map[client.ObjectKey][]string{}
	for i := range releases {
		if key := view.SourceKey(&releases[i]); key.Name != "" {
			of[key] = append(of[key], releases[i].Namespace+"/"+releases[i].Name)
		}
	}
	keys := slices.SortedFunc(maps.Keys(of), func(a, b client.ObjectKey) int { return cmp.Compare(a.String(), b.String()) })
	var list []Finding
	for _, key := range keys {
		object := "GitSource " + key.String()
		err := e.Get(ctx, key, &v1alpha1.GitSource{})
		switch {
		case apierrors.IsNotFound(err):
			list = append(list, Finding{Result: Problem, Check: "release", Object: object,
				Message: fmt.Sprintf("it is gone, and %s of it wait for commits and approvals that no controller reads: %s",
					number(len(of[key]), "BatchRelease"), plan.JoinNames(of[key])),
				Todo: "create the GitSource again, as with tranche bootstrap"})
		case err != nil:
			list = append(list, unknown("release", object, err))
		}
	}
	return list
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
