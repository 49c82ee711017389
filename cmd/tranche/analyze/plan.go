package analyze

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/measure"
	"github.com/tranche-dev/tranche/plan/queries"
	"github.com/tranche-dev/tranche/plan/v1alpha1"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// tried is the plan that is tried.
type tried struct {
	file     string
	strategy v1alpha1.BatchStrategy
	// left are the metrics that cannot be tried, each with the reason.
	left []Left
}

// Left is a metric that cannot be tried.
type Left struct {
	Metric string `json:"metric"`
	Reason string `json:"reason"`
}

// readPlan reads the plan of a release from the working tree.
func readPlan(path string, br *v1alpha1.BatchRelease) (*tried, error) {
	objects, err := cli.RenderPath(path)
	if err != nil {
		return nil, err
	}
	var others []string
	for _, o := range objects {
		if o.GetKind() != "BatchRelease" {
			continue
		}
		p, problems := plan.DecodePlan(o)
		if len(problems) > 0 {
			return nil, problems
		}
		if p.Name != br.Name && p.Spec.WorkloadRef.Name != br.Spec.WorkloadRef.Name || p.Namespace != "" && p.Namespace != br.Namespace {
			others = append(others, p.Name)
			continue
		}
		if problems := plan.ExpandAnalyses(p, o, objects); len(problems) > 0 {
			return nil, problems
		}
		t := &tried{file: cli.FileOf(path, o.File), strategy: p.Spec.Strategy}
		return t, t.check(p.Name)
	}
	hint := "name the file or the folder with it"
	if len(others) > 0 {
		hint = "there are " + strings.Join(others, ", ")
	}
	return nil, fmt.Errorf("%s: no BatchRelease %s/%s is in it; %s", path, br.Namespace, br.Name, hint)
}

// check refuses a plan without metrics, or with metrics that the controller would refuse.
func (t *tried) check(name string) error {
	a := t.strategy.Analysis
	if a == nil || len(a.Metrics) == 0 || len(t.steps()) == 0 && len(a.Background) == 0 {
		return fmt.Errorf("%s: BatchRelease %s: no step has an analysis", t.file, name)
	}
	for i := range a.Metrics {
		at := field.NewPath("spec", "strategy", "analysis", "metrics").Index(i)
		if errs := queries.Check(&a.Metrics[i], at); len(errs) > 0 {
			return fmt.Errorf("%s: BatchRelease %s: %w", t.file, name, errs.ToAggregate())
		}
	}
	return nil
}

// steps are the steps with an analysis.
func (t *tried) steps() (steps []int) {
	for i := range t.strategy.Steps {
		if t.strategy.Steps[i].Analysis != nil {
			steps = append(steps, i)
		}
	}
	return steps
}

// prepare leaves out the metrics that cannot be tried, and sets the address of the others, if
// one is given.
func (t *tried) prepare(address string, same bool) error {
	a := t.strategy.Analysis
	var kept []v1alpha1.Metric
	for _, m := range a.Metrics {
		if reason := untried(&m, same); reason != "" {
			t.left = append(t.left, Left{m.Name, reason})
			continue
		}
		if p := m.Prometheus; p != nil && address != "" {
			p.Provider, p.SecretRef, p.Address = "", nil, address
		}
		switch {
		case m.Prometheus != nil && m.Prometheus.Provider != "":
			return fmt.Errorf("%s: metric %s: the address of provider %s is known to the controller alone; give it with --prometheus",
				t.file, m.Name, m.Prometheus.Provider)
		case m.Datadog != nil && m.Datadog.Provider != "":
			return fmt.Errorf("%s: metric %s: the keys of provider %s are known to the controller alone; write a secretRef",
				t.file, m.Name, m.Datadog.Provider)
		}
		if same {
			m.Max, m.Min = nil, nil
		}
		kept = append(kept, m)
	}
	if len(kept) == 0 {
		return fmt.Errorf("%s: no metric can be tried: %s: %s", t.file, t.left[0].Metric, t.left[0].Reason)
	}
	a.Metrics = kept
	a.Background = slices.DeleteFunc(slices.Clone(a.Background), func(name string) bool {
		return same || !slices.ContainsFunc(kept, func(m v1alpha1.Metric) bool { return m.Name == name })
	})
	return nil
}

// untried says why a metric cannot be tried; empty: it can.
func untried(m *v1alpha1.Metric, same bool) string {
	switch {
	case measure.Timed(m):
		return "measures at a moment, and it is over"
	case !same:
		return ""
	case m.Compare == nil:
		return "does not compare"
	case m.Prometheus == nil:
		return "only queries of Prometheus can be split"
	}
	for _, query := range []string{m.Prometheus.Query, m.Prometheus.Total} {
		if strings.Contains(query, "$(revision)") || strings.Contains(query, "$(replicaset)") {
			return "selects by the revision; only $(pods) can be split"
		}
	}
	return ""
}

// names are the metrics of a step that can be tried.
func (t *tried) names(step *v1alpha1.StepAnalysis) (names []string) {
	for _, m := range t.strategy.Analysis.Metrics {
		if len(step.Metrics) == 0 {
			names = append(names, m.Name)
		}
		for _, name := range step.Metrics {
			if name == m.Name {
				names = append(names, name)
			}
		}
	}
	return names
}
