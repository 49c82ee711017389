package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

func newHistory() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "history NAME",
		Short: "Show the last releases, and who approved them",
		Long: `Show the last ten releases, newest first: revision and commit, how each ended,
and who opened the gate of which step in which commit.`,
		Example: "  tranche history web -n shop",
		Args:    cobra.ExactArgs(1),
	}
	k := addCluster(c)
	addOutput(c, &output, "json", "yaml")
	c.ValidArgsFunction = k.completeNames
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkOutput(output, "json", "yaml"); err != nil {
			return err
		}
		at, err := k.connect()
		if err != nil {
			return err
		}
		br, err := at.release(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if output != "" {
			return printValue(cmd.OutOrStdout(), output, br.Status.History)
		}
		_, err = io.WriteString(cmd.OutOrStdout(), historyTable(br, time.Now()))
		return err
	}
	return c
}

// printValue writes what is no object of its own as JSON or YAML.
func printValue(w io.Writer, output string, v any) error {
	text, err := yaml.Marshal(v)
	if err == nil && output == "json" {
		text, err = yaml.YAMLToJSON(text)
		text = append(text, '\n')
	}
	if err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	_, err = w.Write(text)
	return err
}

// historyTable has a line for each release that has ended, newest first.
func historyTable(br *v1alpha1.BatchRelease, now time.Time) string {
	if len(br.Status.History) == 0 {
		return "No release of " + br.Name + " has ended yet.\n"
	}
	rows := [][]string{{"REVISION", "COMMIT", "OUTCOME", "ENDED", "TOOK", "APPROVED BY"}}
	for _, h := range br.Status.History {
		rows = append(rows, []string{h.Revision, orNone(short(h.Commit)), outcomeOf(h), age(h.EndTime, now) + " ago", took(h), orNone(approvers(h.Approvals))})
	}
	return table(rows)
}

// outcomeOf says how a release ended, and marks one that brought back what ran before.
func outcomeOf(h v1alpha1.ReleaseRecord) string {
	if h.Rollback {
		return string(h.Outcome) + ", a rollback"
	}
	return string(h.Outcome)
}

func took(h v1alpha1.ReleaseRecord) string {
	if h.StartTime.IsZero() {
		return "-"
	}
	return duration.HumanDuration(h.EndTime.Sub(h.StartTime.Time))
}

// approvers says who opened which gates: "step 0: Ada <ada@example.org> in 3f2c1e0".
func approvers(list []v1alpha1.StepApproval) string {
	var texts []string
	for _, a := range list {
		texts = append(texts, fmt.Sprintf("step %d: %s", a.Step, approver(a)))
	}
	return strings.Join(texts, "; ")
}

func approver(a v1alpha1.StepApproval) string {
	switch {
	case a.By == "cluster":
		return "in the cluster"
	case a.Commit != "":
		return a.By + " in " + short(a.Commit)
	}
	return a.By
}
