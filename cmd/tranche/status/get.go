package status

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

func NewGet() *cobra.Command {
	var all bool
	var output string
	formats := []string{cli.OutputTable, cli.OutputJSON, cli.OutputYAML, cli.OutputWide, cli.OutputName}
	c := &cobra.Command{
		Use:   "get [NAME]",
		Short: "List releases, a line each",
		Long: `List releases, a line each. Below the table stands each GitSource of the namespace with
a problem, and that problem: why a commit has no release.`,
		Example: `  tranche get -A
  tranche get -n shop -o wide
  tranche get sources -n shop`,
		Args: cobra.MaximumNArgs(1),
	}
	k := cli.AddCluster(c)
	c.Flags().BoolVarP(&all, "all-namespaces", "A", false, "list those of all namespaces")
	cli.AddOutput(c, &output, formats...)
	c.ValidArgsFunction = k.CompleteNames
	c.AddCommand(newGetSources())
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := cli.CheckOutput(output, formats...); err != nil {
			return err
		}
		at, err := k.Connect()
		if err != nil {
			return err
		}
		if len(args) == 1 {
			br, err := at.Release(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return printReleases(cmd.OutOrStdout(), []v1alpha1.BatchRelease{*br}, output, false, true, time.Now())
		}
		if all {
			at.Namespace = ""
		}
		list, err := at.Releases(cmd.Context(), at.Namespace)
		if err != nil {
			return err
		}
		if output == cli.OutputTable || output == cli.OutputWide {
			return printTable(at, cmd, list, all, output == cli.OutputWide)
		}
		return printReleases(cmd.OutOrStdout(), list, output, all, false, time.Now())
	}
	return c
}

// printTable prints releases, and below them the sources with a problem.
func printTable(at *cli.Connection, cmd *cobra.Command, list []v1alpha1.BatchRelease, all, wide bool) error {
	problems, err := at.SourceProblems(cmd.Context(), at.Namespace)
	if err != nil {
		return err
	}
	if len(list) > 0 {
		text := releaseTable(list, all, wide, time.Now())
		if problems != "" {
			text += "\n" + problems
		}
		_, err := io.WriteString(cmd.OutOrStdout(), text)
		return err
	}
	where := "in namespace " + at.Namespace
	if all {
		where = "in any namespace"
	}
	_, err = fmt.Fprintf(cmd.ErrOrStderr(), "No BatchReleases %s.\n", where)
	_, wrong := io.WriteString(cmd.OutOrStdout(), problems)
	return errors.Join(err, wrong)
}

// printReleases writes releases in a format; empty is the table. One alone is
// printed as an object, not as a list.
func printReleases(w io.Writer, list []v1alpha1.BatchRelease, output string, namespaces, alone bool, now time.Time) error {
	switch output {
	case cli.OutputTable, cli.OutputWide:
		_, err := io.WriteString(w, releaseTable(list, namespaces, output == cli.OutputWide, now))
		return err
	}
	objects := make([]client.Object, len(list))
	for i := range list {
		objects[i] = &list[i]
	}
	return printList(w, output, "BatchRelease", &v1alpha1.BatchReleaseList{Items: list}, objects, alone)
}

func printerOf(output string) printers.ResourcePrinter {
	switch output {
	case cli.OutputJSON:
		return &printers.JSONPrinter{}
	case cli.OutputYAML:
		return &printers.YAMLPrinter{}
	default:
		return &printers.NamePrinter{}
	}
}

// releaseTable has a line for each release.
func releaseTable(list []v1alpha1.BatchRelease, namespaces, wide bool, now time.Time) string {
	columns := []string{"NAME", "PHASE", "STEP", "PODS", "REVISION", "REASON", "AGE"}
	if namespaces {
		columns = append([]string{"NAMESPACE"}, columns...)
	}
	if wide {
		columns = append(columns, "COMMIT", "SOURCE", "MESSAGE")
	}
	rows := [][]string{columns}
	for i := range list {
		br := &list[i]
		at := &br.Status
		row := []string{
			br.Name, cli.OrNone(string(at.Phase)), cli.StepOf(br), fmt.Sprintf("%d/%d", at.UpdatedReplicas, at.Replicas),
			cli.OrNone(at.UpdateRevision), cli.OrNone(at.Reason), cli.Age(br.CreationTimestamp, now),
		}
		if namespaces {
			row = append([]string{br.Namespace}, row...)
		}
		if wide {
			row = append(row, cli.OrNone(cli.Short(cli.CommitOf(br))), cli.OrNone(br.Labels[v1alpha1.LabelSource]), at.Message)
		}
		rows = append(rows, row)
	}
	return cli.Table(rows)
}
