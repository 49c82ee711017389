package plan_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/plantest"
)

const noMetrics = "apiVersion: tranche.dev/v1alpha1\nkind: BatchAnalysis\nmetadata: {name: errors}\nspec: {metrics: []}\n"

// Beside problems, a set has the releases of which nothing is wrong. It has no Deployment of the
// others, which would be one without a plan.
func TestCollect_BesideProblems(t *testing.T) {
	t.Parallel()
	web, api := plantest.Deployment("web", "nginx", "10"), plantest.Deployment("api", "nginx", "10")
	planOf := func(name string) string { return plantest.Plan(name, "1") }
	edited := func(manifest, old, new string) string {
		if !strings.Contains(manifest, old) {
			t.Errorf("there is no %q in %s", old, manifest)
		}
		return strings.Replace(manifest, old, new, 1)
	}
	measured := func(name, from string) string { return planOf(name) + "    analysis: {from: [" + from + "]}\n" }
	const replicas = "replicas: 1\n"
	for name, tt := range map[string]struct {
		add  []string // beside web and its plan
		want []string // the releases
	}{
		"a step beyond 32 bits":        {[]string{api, edited(planOf("api"), replicas, "replicas: 2147483648\n")}, []string{"web"}},
		"a step beyond 100 %":          {[]string{api, edited(planOf("api"), replicas, "replicas: 101%\n")}, []string{"web"}},
		"another plan for web":         {[]string{edited(planOf("web"), "name: web", "name: second")}, nil},
		"the plan of web twice":        {[]string{planOf("web")}, nil},
		"web twice":                    {[]string{web}, nil},
		"no Deployment":                {[]string{planOf("api")}, []string{"web"}},
		"a paused Deployment":          {[]string{edited(api, "spec:\n", "spec:\n  paused: true\n"), planOf("api")}, []string{"web"}},
		"a Deployment that has a hash": {[]string{edited(api, "labels: {", "labels: {pod-template-hash: x, "), planOf("api")}, []string{"web"}},
		"no analysis":                  {[]string{api, measured("api", "errors")}, []string{"web"}},
		"an analysis without metrics":  {[]string{api, measured("api", "errors"), noMetrics}, []string{"web"}},
		"an analysis of no release":    {[]string{api, planOf("api"), noMetrics}, []string{"api", "web"}},
		"another kind, twice": {
			[]string{api, planOf("api"), plantest.Deployment("x", "nginx", "1"), plantest.Deployment("x", "nginx", "2")}, []string{"api", "web"},
		},
	} {
		all := strings.Join(append([]string{web, planOf("web")}, tt.add...), "---\n")
		objects := plantest.Render(t, map[string]string{"apps/a.yaml": all}, "apps")
		set, err := plan.Collect(objects, plan.CollectOptions{Namespace: "shop"})
		if err == nil {
			t.Errorf("%s: no problem", name)
		}
		var got []string
		for i := range set.Releases {
			got = append(got, set.Releases[i].Plan.Name)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: releases\n%s", name, diff)
		}
		for _, o := range set.Objects {
			if o.GetName() != "x" && o.GetKind() == "Deployment" && set.Governed(o) == nil {
				t.Errorf("%s: %s is without its plan", name, o)
			}
		}
	}
}
