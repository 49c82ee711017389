package plan_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/plantest"
	"github.com/tranche-dev/tranche/plan/queries"
)

// measured is a plan with an analysis. Edits replace parts of it.
const measured = `apiVersion: tranche.dev/v1alpha1
kind: BatchRelease
metadata: {name: web}
spec:
  workloadRef: {name: web}
  strategy:
    steps:
    - replicas: 1
      analysis: {duration: 10m}
    - replicas: 100%
    analysis:
      from: [slo]
      background: [errors]
      metrics:
      - name: errors
        prometheus:
          provider: platform
          query: sum(increase(e{pod=~"$(pods)"}[$(window)]))
          total: sum(increase(t{pod=~"$(pods)"}[$(window)]))
        max: 2%
      - name: p99
        prometheus:
          address: https://prometheus.example.org
          query: |
            histogram_quantile(0.99,
              sum by (le) (rate(d{pod=~"$(pods)"}[1m])))
          samples: 1m
        compare: {worse: Higher, by: 20%}
      - name: smoke
        job: {from: smoke}
`

const slo = `apiVersion: tranche.dev/v1alpha1
kind: BatchAnalysis
metadata: {name: slo}
spec:
  metrics:
  - {name: shared, prometheus: {provider: platform, query: 'x{pod=~"$(pods)"}'}, max: 0.5}
`

const smoke = `apiVersion: batch/v1
kind: CronJob
metadata: {name: smoke}
spec:
  schedule: "@daily"
  suspend: true
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: x, image: x}]}}}}
`

// collectMeasured returns the problems of the plan with edits: old and new text in turns.
func collectMeasured(t *testing.T, edits ...string) (*plan.Set, error) {
	t.Helper()
	files := map[string]string{
		"apps/web.yaml": plantest.Deployment("web", "nginx", "10"), "apps/release.yaml": measured,
		"apps/slo.yaml": slo, "apps/smoke.yaml": smoke,
	}
	for i := 0; i < len(edits); i += 2 {
		found := false
		for name, text := range files {
			if strings.Contains(text, edits[i]) {
				files[name], found = strings.ReplaceAll(text, edits[i], edits[i+1]), true
			}
		}
		if !found {
			t.Fatalf("no file has %q", edits[i])
		}
	}
	objects, err := manifest.Render(plantest.Tree(t, files), "apps", manifest.RenderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	providers := func(namespace, name string) string {
		return map[string]string{"shop/platform": "prometheus", "shop/dd": "datadog"}[namespace+"/"+name]
	}
	return plan.Collect(objects, plan.CollectOptions{
		Namespace: "shop", Namespaced: manifest.Namespaced, CheckMetric: queries.Check, ProviderOf: providers,
	})
}

// TestAnalyses: the metrics of files are part of the plan, and no file is an object to apply.
func TestAnalyses(t *testing.T) {
	set, err := collectMeasured(t)
	if err != nil {
		t.Fatal(err)
	}
	a := set.Releases[0].Plan.Spec.Strategy.Analysis
	var names []string
	for _, m := range a.Metrics {
		names = append(names, m.Name)
	}
	if got := strings.Join(names, " "); got != "errors p99 smoke shared" || a.From != nil {
		t.Errorf("the plan has the metrics %s and the files %v", got, a.From)
	}
	for _, o := range set.Objects {
		if o.GetKind() == "BatchAnalysis" {
			t.Errorf("%s is to be applied", o)
		}
	}
}

// TestAnalyses_Refused: each mistake is found with the commit, at its field.
func TestAnalyses_Refused(t *testing.T) {
	const at = "spec.strategy.analysis.metrics"
	for _, tc := range []struct {
		reason string
		edits  []string
		want   string // in the only problem, or the first one
	}{
		{"a query that does not parse", []string{`sum(increase(e{`, `sum((increase(e{`},
			at + "[0].prometheus.query: line 1, column 45: unclosed left parenthesis"},
		{"a mistake on the second line", []string{`sum by (le)`, `sum byy (le)`}, at + "[1].prometheus.query: line 2, column 7"},
		{"an unknown placeholder", []string{`e{pod=~"$(pods)"}`, `e{pod=~"$(pod)"}`},
			at + "[0].prometheus.query: line 1, column 22: $(pod) is not known"},
		{"a revision in a comment", []string{`t{pod=~"$(pods)"}`, "'t # $(pods)'"}, at + "[0].prometheus.total: names no revision"},
		{"no revision", []string{`t{pod=~"$(pods)"}`, `t`}, at + "[0].prometheus.total: names no revision"},
		{"a range that counts windows twice", []string{`e{pod=~"$(pods)"}[$(window)]`, `e{pod=~"$(pods)"}[5m]`},
			at + "[0].prometheus.query: line 1, column 14: the range of 5m0s is longer than interval, 1m0s"},
		{"samples that are shorter than the range", []string{`[1m])))`, `[2m])))`},
			"line 2, column 21: the range of 2m0s is longer than samples, 1m0s"},
		{"a query that yields no value", []string{`sum(increase(e{pod=~"$(pods)"}[$(window)]))`, `e{pod=~"$(pods)"}[1m]`},
			"has the type range vector"},
		{"too few samples", []string{"duration: 10m", "duration: 3m"}, "has 3 values in 3m0s, and needs 4 to be judged"},
		{"a window longer than the duration", []string{"duration: 10m", "duration: 30s"}, "are longer than the duration of 30s"},
		{"a metric named twice", []string{"name: shared", "name: errors"}, at + "[3].name: errors: is the name of another metric, too"},
		{"a metric that is absent", []string{"background: [errors]", "background: [error]"},
			"spec.strategy.analysis.background[0]: error: no metric has this name"},
		{"a metric of a step that is absent", []string{"duration: 10m", "duration: 10m, metrics: [error]"},
			"steps[0].analysis.metrics[0]: error: no metric has this name"},
		{"compare without by", []string{"compare: {worse: Higher, by: 20%}", "compare: {worse: Higher}"},
			at + "[1].compare.by: must be the least difference"},
		{"no limit", []string{"        max: 2%\n", ""}, at + "[0]: must have max, min or compare"},
		{"a limit that is none", []string{"max: 2%", "max: few"}, `"few" is not a number`},
		{"two providers", []string{"job: {from: smoke}", "job: {from: smoke}\n        web: {url: 'https://x'}"},
			at + "[2]: must have exactly one of"},
		{"a condition with a wrong type", []string{"job: {from: smoke}", "web: {url: 'https://x'}\n        condition: status + 1"},
			at + "[2].condition: "},
		{"a CronJob that is not rendered", []string{"job: {from: smoke}", "job: {from: smok}"},
			at + "[2].job.from: no CronJob shop/smok is rendered with it"},
		{"a CronJob that runs by itself", []string{"suspend: true", "suspend: false"}, "CronJob shop/smoke in apps/smoke.yaml is not suspended"},
		{"a Job in the background", []string{"background: [errors]", "background: [smoke]"}, "a Job is not run in the background"},
		{"a provider that is not configured", []string{"provider: platform\n", "provider: other\n"},
			"has no provider other of type prometheus for namespace shop"},
		{"a provider of another type", []string{"provider: platform\n", "provider: dd\n"}, "has no provider dd of type prometheus"},
		{"a file that is not rendered", []string{"from: [slo]", "from: [sla]"},
			"spec.strategy.analysis.from[0]: no BatchAnalysis shop/sla is rendered with it"},
		{"a mistake in a file", []string{`'x{pod=~"$(pods)"}'`, `'x{pod=~"$(pods)"'`},
			"apps/slo.yaml: BatchAnalysis shop/slo: spec.metrics[0].prometheus.query: line 1"},
		{"a field that there is not", []string{"max: 2%", "maximum: 2%"}, "maximum: no such field"},
		{"pause and analysis", []string{"analysis: {duration: 10m}", "analysis: {duration: 10m}\n      pause: {duration: 1m}"},
			"pause and analysis exclude each other"},
		{"an approval of the last step", []string{"- replicas: 100%", "- replicas: 100%\n      analysis: {duration: 10m, approval: true}"},
			"the last step leads to no other one"},
		{"a Deployment with a long name", []string{"name: web", "name: " + strings.Repeat("w", 47)}, "$(pods) does not tell the revisions"},
	} {
		_, err := collectMeasured(t, tc.edits...)
		said := plantest.List(err)
		if len(said) == 0 || !strings.Contains(said[0], tc.want) {
			t.Errorf("%s: got\n%s\nwant %s", tc.reason, strings.Join(said, "\n"), tc.want)
		}
	}
}

// TestTerms_Analysis: all that decides about a verdict is part of the terms, and a plan that is
// kept by its terms has the same ones.
func TestTerms_Analysis(t *testing.T) {
	terms := func(edits ...string) plan.Terms {
		set, err := collectMeasured(t, edits...)
		if err != nil {
			t.Fatal(err)
		}
		return set.Releases[0].Terms()
	}
	of := terms()
	same := terms("duration: 10m", "duration: 600s",
		"name: errors", "name: errors\n        interval: 60s\n        delay: 30s\n        scope: Revision")
	if same != of {
		t.Errorf("defaults change the terms: %s", cmp.Diff(of, same))
	}
	seen := map[string]string{of.Digest(): "the plan"}
	for _, edit := range [][2]string{
		{"max: 2%", "max: 3%"}, {"duration: 10m", "duration: 20m"}, {"by: 20%", "by: 30%"}, {"max: 0.5", "max: 0.6"},
		{"background: [errors]", "background: [p99]"}, {"from: [slo]", "from: [slo]\n      mode: Observe"}, {"e{pod", "f{pod"},
		{"from: [slo]", "from: [slo]\n      onUnknown: Pass"}, {"from: [slo]", "from: [slo]\n      onFailure: Rollback"},
		{"from: [slo]", "from: [slo]\n      unknownDeadlineSeconds: 1"}, {"duration: 10m", "duration: 10m, approval: true"},
		{"duration: 10m", "duration: 10m, metrics: [errors]"},
	} {
		d := terms(edit[0], edit[1]).Digest()
		if other, ok := seen[d]; ok {
			t.Errorf("%s has the digest of %s", edit[1], other)
		}
		seen[d] = edit[1]
	}
	set, err := collectMeasured(t)
	if err != nil {
		t.Fatal(err)
	}
	r := set.Releases[0]
	kept, err := set.Under([]plan.Kept{{Namespace: "shop", Name: "web", Plan: r.Plan.ObjectMeta, Terms: of}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := kept.Releases[0].Terms(); got != of {
		t.Errorf("a plan that is kept has other terms: %s", cmp.Diff(of, got))
	}
}

// TestOverrides: an override is for a release and its metrics.
func TestOverrides(t *testing.T) {
	set, err := collectMeasured(t)
	if err != nil {
		t.Fatal(err)
	}
	const commit = "0123456789abcdef0123456789abcdef01234567"
	approval := plantest.Approval("web", "abc", commit, "0")
	for text, want := range map[string]string{
		"override: {metrics: [errors], reason: known}":  "",
		"override: {metrics: [error], reason: known}":   "spec.override.metrics: the plan has no metric error",
		"override: {metrics: [], reason: known}":        "spec.override.metrics: must have 1 to 12 names",
		"override: {metrics: [errors], reason: ' '}":    "spec.override.reason: must be set",
		"override: {metrics: [errors], because: known}": "because: no such field",
	} {
		tree := plantest.Tree(t, map[string]string{"approvals/web.yaml": strings.Replace(approval, "step: 0", "step: 0, "+text, 1)})
		approvals, ps := manifest.ReadApprovals(tree, "approvals", "shop")
		if len(ps) == 0 {
			_, ps = plan.MatchApproval(&set.Releases[0], commit, approvals)
		}
		if said := strings.Join(plantest.List(ps.Err()), "\n"); (want == "") != (said == "") || !strings.Contains(said, want) {
			t.Errorf("%s: got %q, want %q", text, said, want)
		}
	}
}
