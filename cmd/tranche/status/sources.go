package status

import (
	"context"
	"fmt"
	"io"
	"path"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

func newGetSources() *cobra.Command {
	var all bool
	var output string
	formats := []string{cli.OutputTable, cli.OutputJSON, cli.OutputYAML, cli.OutputWide, cli.OutputName}
	c := &cobra.Command{
		Use:     "sources [NAME]",
		Aliases: []string{"source", "gitsources", "gitsource", "gsrc"},
		Short:   "List GitSources, a line each",
		Long: `List GitSources, a line each: the branch, the commit that is applied, and whether the
cluster follows the branch. PROBLEM is the reason for which it does not; -o wide has the
message.`,
		Example: `  tranche get sources -A
  tranche get sources shop -n shop -o yaml`,
		Args: cobra.MaximumNArgs(1),
	}
	k := cli.AddCluster(c)
	c.Flags().BoolVarP(&all, "all-namespaces", "A", false, "list those of all namespaces")
	cli.AddOutput(c, &output, formats...)
	c.ValidArgsFunction = k.Complete(func(ctx context.Context, at *cli.Connection, args []string) ([]string, error) {
		if len(args) > 0 {
			return nil, nil
		}
		return cli.SourceNames(ctx, at, args)
	})
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := cli.CheckOutput(output, formats...); err != nil {
			return err
		}
		at, err := k.Connect()
		if err != nil {
			return err
		}
		if len(args) == 1 {
			gs, err := at.SourceNamed(cmd.Context(), at.Namespace, args[0])
			if err != nil {
				return err
			}
			return printSources(cmd.OutOrStdout(), []v1alpha1.GitSource{*gs}, output, false, true, time.Now())
		}
		where := "in namespace " + at.Namespace
		if all {
			at.Namespace, where = "", "in any namespace"
		}
		list, err := at.Sources(cmd.Context(), at.Namespace)
		if err != nil {
			return err
		}
		if len(list) == 0 && (output == cli.OutputTable || output == cli.OutputWide) {
			_, err := fmt.Fprintf(cmd.ErrOrStderr(), "No GitSources %s.\n", where)
			return err
		}
		return printSources(cmd.OutOrStdout(), list, output, all, false, time.Now())
	}
	return c
}

// printSources writes GitSources in a format. One alone is printed as an object.
func printSources(w io.Writer, list []v1alpha1.GitSource, output string, namespaces, alone bool, now time.Time) error {
	if output == cli.OutputTable || output == cli.OutputWide {
		_, err := io.WriteString(w, sourceTable(list, namespaces, output == cli.OutputWide, now))
		return err
	}
	objects := make([]client.Object, len(list))
	for i := range list {
		objects[i] = &list[i]
	}
	return printList(w, output, "GitSource", &v1alpha1.GitSourceList{Items: list}, objects, alone)
}

// printList writes objects of a kind: the list of them, or each if one stands alone or
// names are printed.
func printList(w io.Writer, output, kind string, list client.ObjectList, objects []client.Object, alone bool) error {
	list.GetObjectKind().SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind + "List"))
	whole := []runtime.Object{list}
	if alone || output == cli.OutputName {
		whole = nil
	}
	for _, o := range objects {
		o.GetObjectKind().SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
		o.SetManagedFields(nil)
		if alone || output == cli.OutputName {
			whole = append(whole, o)
		}
	}
	return printObjects(w, output, whole)
}

// printObjects writes objects of the cluster.
func printObjects(w io.Writer, output string, objects []runtime.Object) error {
	p := printerOf(output)
	for _, o := range objects {
		if err := p.PrintObj(o, w); err != nil {
			return fmt.Errorf("printing: %w", err)
		}
	}
	return nil
}

// sourceTable has a line for each source.
func sourceTable(list []v1alpha1.GitSource, namespaces, wide bool, now time.Time) string {
	columns := []string{"NAME", "READY", "BRANCH", "APPLIED", "PROBLEM", "AGE"}
	if namespaces {
		columns = append([]string{"NAMESPACE"}, columns...)
	}
	if wide {
		columns = append(columns, "URL", "PATH", "MESSAGE")
	}
	rows := [][]string{columns}
	for i := range list {
		gs, ready := &list[i], cli.ReadyOf(&list[i])
		problem, message := "-", ready.Message
		switch p := cli.ProblemOf(gs); {
		case p != nil:
			problem, message = p.Reason, p.Message
		case gs.Spec.Suspend:
			problem, message = "Suspended", "spec.suspend is true"
		}
		row := []string{
			gs.Name, cli.OrNone(string(ready.Status)), gs.Spec.Ref.String(), cli.OrNone(cli.Short(gs.Status.AppliedCommit)), problem,
			cli.Age(gs.CreationTimestamp, now),
		}
		if namespaces {
			row = append([]string{gs.Namespace}, row...)
		}
		if wide {
			row = append(row, gs.Spec.URL, path.Clean(gs.Spec.Path), message)
		}
		rows = append(rows, row)
	}
	return cli.Table(rows)
}
