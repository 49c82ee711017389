package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/tranche-dev/tranche/cmd/tranche/terminal"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/measure"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/statistics"
	"github.com/tranche-dev/tranche/rollout/engine/verdict"
)

// sensitivity is the traffic for which lint says which harm goes unnoticed.
type sensitivity struct {
	requests float64 // per second of one pod
	failing  string  // the part of stable's requests that fail
}

// base returns the part that fails, 0 to 1.
func (s sensitivity) base() (float64, error) {
	percent, ok := strings.CutSuffix(s.failing, "%")
	base, err := strconv.ParseFloat(percent, 64)
	if !ok || err != nil || !(base >= 0 && base < 100) {
		return 0, fmt.Errorf("--failing %s: must be a percentage from 0%% to below 100%%", s.failing)
	}
	return base / 100, nil
}

// write says of the comparisons of each step which harm they do not notice. There are 10
// replicas where a plan has no Deployment beside it.
func (s sensitivity) write(w io.Writer, paths []string) error {
	base, err := s.base()
	if err != nil {
		return err
	}
	if !(s.requests > 0 && s.requests <= 1e9) {
		return errors.New("--requests must be above 0")
	}
	for _, path := range paths {
		releases, err := readPlans(path)
		if err != nil {
			return err
		}
		for i := range releases {
			for _, line := range s.lines(&releases[i], base) {
				if _, err := fmt.Fprintf(w, "%s: %s\n", terminal.Printable(releases[i].file), terminal.Printable(line)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// lines are of the proportions that compare, by step.
func (s sensitivity) lines(r *plannedRelease, base float64) (lines []string) {
	replicas := int32(10)
	if n := r.deployment.Spec.Replicas; n != nil {
		replicas = *n
	}
	steps := r.plan.Spec.Strategy.Steps
	for i := range steps {
		a := steps[i].Analysis
		update := plan.Target(steps, i, replicas)
		if a == nil || update >= replicas {
			continue
		}
		for j := range r.plan.Spec.Strategy.Analysis.Metrics {
			m := &r.plan.Spec.Strategy.Analysis.Metrics[j]
			if m.Compare == nil || !measure.HasTotal(m) || len(a.Metrics) > 0 && !slices.Contains(a.Metrics, m.Name) {
				continue
			}
			w := statistics.Window{
				Duration: a.Duration.Duration - measure.WarmUp(m), Rate: s.requests, Update: int(update), Stable: int(replicas - update),
				Base: base, Planned: int(measure.Planned(m, a.Duration.Duration)),
			}
			if m.Compare.Worse == v1alpha1.WorseLower {
				w.Base = 1 - base
			}
			lines = append(lines, fmt.Sprintf("BatchRelease %s: %s at step %d: %s", r.plan.Name, m.Name, i, verdict.RuleOf(m).Sensitivity(w)))
		}
	}
	return lines
}
