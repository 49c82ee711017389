package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/terminal"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/simulation"
)

type simulateOptions struct {
	replicas                 int32
	podReady, approveAfter   time.Duration
	failAt                   int32
	maxSurge, maxUnavailable string
	minReadySeconds          int32
	name                     string
	metrics                  []string
}

func newSimulate() *cobra.Command {
	o := simulateOptions{}
	c := &cobra.Command{
		Use:   "simulate PLAN",
		Short: "Try a plan before committing it",
		Long: `Try a plan before committing it. The output has the pods of each revision over time, the
gates of the release, and the available pods. The same code decides as in the controller,
without a cluster.

PLAN is a file with a BatchRelease, or a folder or kustomization with several. Replicas and
strategy are those of the Deployment beside it, unless flags set them. Without a Deployment
there are 10 replicas.`,
		Example: `  tranche simulate release.yaml
  tranche simulate overlays/production --replicas 40 --pod-ready 90s
  tranche simulate release.yaml --fail-at 1     # pods made from step 1 on never come up
  tranche simulate release.yaml --metric errors=fail@1   # a metric fails from step 1 on`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			releases, err := readPlans(args[0])
			if err != nil {
				return err
			}
			return simulate(cmd.OutOrStdout(), cmd.Flags().Changed, o, releases)
		},
	}
	f := c.Flags()
	f.Int32Var(&o.replicas, "replicas", 10, "replicas of the Deployment")
	f.DurationVar(&o.podReady, "pod-ready", 30*time.Second, "how long a new pod takes to become ready")
	f.DurationVar(&o.approveAfter, "approve-after", 5*time.Minute, "how long a person takes to approve a step")
	f.Int32Var(&o.failAt, "fail-at", 0, "step from which on new pods never become ready")
	f.StringVar(&o.maxSurge, "max-surge", "", "maxSurge of the Deployment, a number or a percentage (default 25%)")
	f.StringVar(&o.maxUnavailable, "max-unavailable", "", "maxUnavailable of the Deployment, a number or a percentage (default 25%)")
	f.Int32Var(&o.minReadySeconds, "min-ready-seconds", 0, "minReadySeconds of the Deployment")
	f.StringArrayVar(&o.metrics, "metric", nil,
		"what a metric says from a step on, such as errors=fail@1: pass, fail or unknown; may be repeated (default all pass)")
	f.StringVar(&o.name, "release", "", "name of the BatchRelease, where PLAN has several (default all)")
	return c
}

// plannedRelease is a plan, and the Deployment beside it.
type plannedRelease struct {
	file       string
	plan       v1alpha1.BatchRelease
	deployment appsv1.Deployment
}

// readPlans reads the plans of a file or folder.
func readPlans(path string) ([]plannedRelease, error) {
	objects, err := cli.RenderPath(path)
	if err != nil {
		return nil, err
	}
	var releases []plannedRelease
	for _, o := range objects {
		if o.GetKind() != "BatchRelease" {
			continue
		}
		r := plannedRelease{file: cli.FileOf(path, o.File)}
		decoded, problems := plan.DecodePlan(o)
		if len(problems) > 0 {
			return nil, problems
		}
		if problems := plan.ExpandAnalyses(decoded, o, objects); len(problems) > 0 {
			return nil, problems
		}
		r.plan = *decoded
		for _, d := range objects {
			if d.GetKind() == "Deployment" && d.GetName() == r.plan.Spec.WorkloadRef.Name && d.GetNamespace() == o.GetNamespace() {
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(d.Object, &r.deployment); err != nil {
					return nil, fmt.Errorf("%s: %s: %w", d.File, d, err)
				}
			}
		}
		releases = append(releases, r)
	}
	if len(releases) == 0 {
		return nil, fmt.Errorf("%s: there is no BatchRelease in it", path)
	}
	return releases, nil
}

// simulation puts plan, Deployment and flags together; changed tells which
// flags were given.
func (o simulateOptions) simulation(r *plannedRelease, changed func(string) bool) simulation.Simulation {
	s := simulation.Simulation{
		Plan: r.plan.Spec.Strategy, Replicas: o.replicas, PodReady: o.podReady, ApproveAfter: o.approveAfter,
		Fails: changed("fail-at"), FailAt: o.failAt, Strategy: r.deployment.Spec.Strategy, MinReadySeconds: r.deployment.Spec.MinReadySeconds,
	}
	if n := r.deployment.Spec.Replicas; n != nil && !changed("replicas") {
		s.Replicas = *n
	}
	if changed("min-ready-seconds") {
		s.MinReadySeconds = o.minReadySeconds
	}
	given := simulation.NewStrategy(o.maxSurge, o.maxUnavailable).RollingUpdate
	if s.Strategy.RollingUpdate == nil {
		s.Strategy.RollingUpdate = given
	}
	s.Strategy.RollingUpdate = s.Strategy.RollingUpdate.DeepCopy()
	if o.maxSurge != "" {
		s.Strategy.RollingUpdate.MaxSurge = given.MaxSurge
	}
	if o.maxUnavailable != "" {
		s.Strategy.RollingUpdate.MaxUnavailable = given.MaxUnavailable
	}
	return s
}

// addOutcomes adds what --metric says to a simulation.
func (o simulateOptions) addOutcomes(s *simulation.Simulation, r *plannedRelease) error {
	for _, text := range o.metrics {
		outcome, err := simulation.ParseOutcome(text)
		if err != nil {
			return fmt.Errorf("--metric: %w", err)
		}
		a := r.plan.Spec.Strategy.Analysis
		if a == nil || !slices.ContainsFunc(a.Metrics, func(m v1alpha1.Metric) bool { return m.Name == outcome.Metric }) {
			return fmt.Errorf("--metric %s: %s has no metric %s", text, r.plan.Name, outcome.Metric)
		}
		s.Outcomes = append(s.Outcomes, outcome)
	}
	return nil
}

func (o simulateOptions) check() error {
	switch {
	case o.replicas < 0:
		return errors.New("--replicas must not be negative")
	case o.podReady < 0 || o.approveAfter < 0:
		return errors.New("--pod-ready and --approve-after must not be negative")
	case o.failAt < 0:
		return errors.New("--fail-at must not be negative; steps count from 0")
	case o.minReadySeconds < 0:
		return errors.New("--min-ready-seconds must not be negative")
	}
	return nil
}

// simulatedReplicas is how many replicas a simulation has at most. It keeps each pod.
const simulatedReplicas = 1_000_000

func simulate(w io.Writer, changed func(string) bool, o simulateOptions, releases []plannedRelease) error {
	if err := o.check(); err != nil {
		return err
	}
	var texts []string
	for i := range releases {
		r := &releases[i]
		if o.name != "" && o.name != r.plan.Name {
			continue
		}
		s := o.simulation(r, changed)
		if err := o.addOutcomes(&s, r); err != nil {
			return err
		}
		if n := len(r.plan.Spec.Strategy.Steps); s.Fails && int(s.FailAt) >= n {
			return fmt.Errorf("--fail-at %d: %s has the steps 0 to %d", s.FailAt, r.plan.Name, n-1)
		}
		if s.Replicas > simulatedReplicas {
			return fmt.Errorf("%s: BatchRelease %s: simulating %d replicas: at most %d can be simulated; set a smaller number with --replicas",
				r.file, r.plan.Name, s.Replicas, simulatedReplicas)
		}
		moments, err := s.Run()
		if err != nil {
			return fmt.Errorf("%s: BatchRelease %s: %w", r.file, r.plan.Name, err)
		}
		text, err := simulationText(r.plan.Name, &s, moments)
		if err != nil {
			return err
		}
		texts = append(texts, text)
	}
	if len(texts) == 0 {
		return fmt.Errorf("--release %s: there is no BatchRelease of that name", o.name)
	}
	_, err := io.WriteString(w, terminal.Printable(strings.Join(texts, "\n")))
	return err
}

// simulationText has one line for each time at which something moved, with
// a bar of the pods: = stable, # update, . not yet available.
func simulationText(name string, s *simulation.Simulation, moments []simulation.Moment) (string, error) {
	least, most, err := s.Bounds()
	if err != nil {
		return "", err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s: replicas %d, steps %d; never below %d available, never above %d pods",
		name, s.Replicas, len(s.Plan.Steps), least, most)
	if most == s.Replicas && most > 0 { // maxSurge is 0
		fmt.Fprintf(&text, ", or %d for the length of one write", most+1)
	}
	text.WriteString("\n\n")
	rows := []string{"TIME\tSTEP\tUPDATE\tSTABLE\tAVAILABLE\tPODS\tSTATUS\n"}
	lowest, highest := s.Replicas, int32(0)
	for i, m := range moments {
		lowest = min(lowest, m.UpdatedAvailable+m.StableAvailable)
		highest = max(highest, m.Updated+m.Stable)
		if i+1 < len(moments) && moments[i+1].At == m.At && moments[i+1].Step == m.Step {
			continue // only the last of what happens at once
		}
		update, stable := fmt.Sprintf("%d/%d", m.Updated, m.Target), fmt.Sprint(m.Stable)
		if m.Back {
			update, stable = fmt.Sprint(m.Updated), fmt.Sprintf("%d/%d", m.Stable, m.Target)
		}
		rows = append(rows,
			fmt.Sprintf("%s\t%d\t%s\t%s\t%d\t%s\t%s\n", m.At, m.Step, update, stable, m.UpdatedAvailable+m.StableAvailable, bar(m), momentText(m)))
	}
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	if _, err := io.WriteString(t, strings.Join(rows, "")); err != nil {
		return "", err
	}
	if err := t.Flush(); err != nil {
		return "", err
	}
	last := moments[len(moments)-1]
	fmt.Fprintf(&text, "\n%s after %s; at least %d of %d available throughout, at most %d pods.\nPods: # update, = stable, . not yet "+
		"available. Times of day are times since the start.\n",
		last.Reason, last.At, lowest, s.Replicas, highest)
	return text.String(), nil
}

// momentText is what a moment says: a gate or an end in a sentence, the rest in a word.
func momentText(m simulation.Moment) string {
	switch m.Reason {
	case v1alpha1.ReasonUpgrading, v1alpha1.ReasonTakingHold, v1alpha1.ReasonHandingBack:
		return m.Reason
	}
	return m.Reason + ": " + m.Message
}

// widest is how many characters a bar has at most.
const widest = 40

func bar(m simulation.Moment) string {
	parts := []struct {
		n    int32
		sign string
	}{
		{m.UpdatedAvailable, "#"}, {m.Updated - m.UpdatedAvailable, "."}, {m.StableAvailable, "="}, {m.Stable - m.StableAvailable, "."},
	}
	total := m.Updated + m.Stable
	scale := max(1, (total+widest-1)/widest)
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(strings.Repeat(p.sign, int((p.n+scale-1)/scale)))
	}
	return b.String()
}
