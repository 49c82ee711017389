package plan_test

import (
	"errors"
	"testing"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/plantest"
)

// FuzzPlanFile: whatever a plan file says, it is a valid release or a problem
// that names the file.
func FuzzPlanFile(f *testing.F) {
	f.Add(plantest.Plan("web", "1", "30%"))
	f.Add(plantest.Plan("web", "0", "300%", "'5'"))
	f.Add(plantest.Plan("web", "1") + "status: {}\n")
	f.Add("apiVersion: tranche.dev/v1alpha1\nkind: BatchRelease\nmetadata: {name: web}\nspec: {strategy: {steps: [{pause: {duration: 1y}}]}}\n")
	f.Add("a: &a {x: &b [1, 2]}\nb: [*a, *b]\n---\n" + plantest.Plan("web", "100%"))
	f.Fuzz(func(t *testing.T, content string) {
		objects, err := manifest.Render(plantest.Tree(t, map[string]string{
			"apps/web.yaml": plantest.Deployment("web", "nginx", "10"), "apps/release.yaml": content,
		}), "apps", manifest.RenderOptions{})
		var set *plan.Set
		if err == nil {
			set, err = plan.Collect(objects, plan.CollectOptions{Namespace: "shop", Namespaced: manifest.Namespaced})
		}
		if ps := (plan.Problems)(nil); err != nil {
			if !errors.As(err, &ps) || len(ps) == 0 {
				t.Fatalf("no problem: %v", err)
			}
			return
		}
		for _, r := range set.Releases {
			steps := r.Plan.Spec.Strategy.Steps
			if len(steps) == 0 || steps[len(steps)-1].Replicas != plan.Full || r.Template == nil || r.Plan.Spec.Template != nil {
				t.Errorf("not a release: %+v", r.Plan)
			}
		}
	})
}
