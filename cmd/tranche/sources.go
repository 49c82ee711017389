package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

func newGetSources() *cobra.Command {
	var all bool
	var output string
	formats := []string{outputTable, outputJSON, outputYAML, outputWide, outputName}
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
	k := addCluster(c)
	c.Flags().BoolVarP(&all, "all-namespaces", "A", false, "list those of all namespaces")
	addOutput(c, &output, formats...)
	c.ValidArgsFunction = k.complete(func(ctx context.Context, at *connected, args []string) ([]string, error) {
		if len(args) > 0 {
			return nil, nil
		}
		return sourceNames(ctx, at, args)
	})
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkOutput(output, formats...); err != nil {
			return err
		}
		at, err := k.connect()
		if err != nil {
			return err
		}
		if len(args) == 1 {
			gs, err := at.sourceNamed(cmd.Context(), at.namespace, args[0])
			if err != nil {
				return err
			}
			return printSources(cmd.OutOrStdout(), []v1alpha1.GitSource{*gs}, output, false, true, time.Now())
		}
		where := "in namespace " + at.namespace
		if all {
			at.namespace, where = "", "in any namespace"
		}
		list, err := at.sources(cmd.Context(), at.namespace)
		if err != nil {
			return err
		}
		if len(list) == 0 && (output == outputTable || output == outputWide) {
			_, err := fmt.Fprintf(cmd.ErrOrStderr(), "No GitSources %s.\n", where)
			return err
		}
		return printSources(cmd.OutOrStdout(), list, output, all, false, time.Now())
	}
	return c
}

// sources lists the GitSources of a namespace, or of all where it is empty.
func (c *connected) sources(ctx context.Context, namespace string) ([]v1alpha1.GitSource, error) {
	var list v1alpha1.GitSourceList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing GitSources: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.GitSource) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return list.Items, nil
}

// releasesOf lists the releases of a GitSource, in all namespaces that it applies to.
func (c *connected) releasesOf(ctx context.Context, gs *v1alpha1.GitSource) ([]v1alpha1.BatchRelease, error) {
	namespaces := []string{gs.Namespace}
	if gs.Status.Inventory != nil {
		for _, e := range gs.Status.Inventory.Entries {
			namespace, rest, _ := strings.Cut(e.ID, "_")
			if strings.HasSuffix(rest, "_BatchRelease") && !slices.Contains(namespaces, namespace) {
				namespaces = append(namespaces, namespace)
			}
		}
	}
	slices.Sort(namespaces)
	var found []v1alpha1.BatchRelease
	for _, namespace := range namespaces {
		list, err := c.releases(ctx, namespace)
		if err != nil {
			return nil, fmt.Errorf("namespace %s: %w", namespace, err)
		}
		for i := range list {
			l := list[i].Labels
			if l[v1alpha1.LabelSource] == gs.Name && cmp.Or(l[v1alpha1.LabelSourceNamespace], list[i].Namespace) == gs.Namespace {
				found = append(found, list[i])
			}
		}
	}
	return found, nil
}

// printSources writes GitSources in a format. One alone is printed as an object.
func printSources(w io.Writer, list []v1alpha1.GitSource, output string, namespaces, alone bool, now time.Time) error {
	if output == outputTable || output == outputWide {
		_, err := io.WriteString(w, sourceTable(list, namespaces, output == outputWide, now))
		return err
	}
	objects := []runtime.Object{&v1alpha1.GitSourceList{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "GitSourceList"}, Items: list}}
	for i := range list {
		list[i].SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("GitSource"))
		list[i].ManagedFields = nil
	}
	if alone || output == outputName {
		objects = nil
		for i := range list {
			objects = append(objects, &list[i])
		}
	}
	return printObjects(w, output, objects)
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
		gs, ready := &list[i], readyOf(&list[i])
		problem, message := "-", ready.Message
		switch p := problemOf(gs); {
		case p != nil:
			problem, message = p.Reason, p.Message
		case gs.Spec.Suspend:
			problem, message = "Suspended", "spec.suspend is true"
		}
		row := []string{gs.Name, orNone(string(ready.Status)), gs.Spec.Ref.String(), orNone(short(gs.Status.AppliedCommit)), problem, age(gs.CreationTimestamp, now)}
		if namespaces {
			row = append([]string{gs.Namespace}, row...)
		}
		if wide {
			row = append(row, gs.Spec.URL, path.Clean(gs.Spec.Path), message)
		}
		rows = append(rows, row)
	}
	return table(rows)
}

// readyOf is the condition Ready; empty before the controller has seen the source.
func readyOf(gs *v1alpha1.GitSource) metav1.Condition {
	if c := meta.FindStatusCondition(gs.Status.Conditions, "Ready"); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// problemOf is the condition that says why the cluster is not as the branch says; nil
// where it is, or is about to be.
func problemOf(gs *v1alpha1.GitSource) *metav1.Condition {
	if gs.Spec.Suspend {
		return nil
	}
	for _, kind := range []string{"Ready", "InSync"} {
		if c := meta.FindStatusCondition(gs.Status.Conditions, kind); c != nil && c.Status == metav1.ConditionFalse {
			return c
		}
	}
	return nil
}

// sourceProblems has a line for each source with a problem; empty without any. An
// account that may not read GitSources sees none.
func (c *connected) sourceProblems(ctx context.Context, namespace string) (string, error) {
	list, err := c.sources(ctx, namespace)
	if apierrors.IsForbidden(err) {
		return "", nil
	}
	return problemLines(list), err
}

func problemLines(list []v1alpha1.GitSource) string {
	var b strings.Builder
	for i := range list {
		gs := &list[i]
		if p := problemOf(gs); p != nil {
			fmt.Fprintf(&b, "GitSource %s/%s, %s of %s, applied %s: %s: %s\n", gs.Namespace, gs.Name, pinOf(gs.Spec.Ref), gs.Spec.URL, orNone(short(gs.Status.AppliedCommit)), p.Reason, p.Message)
		}
	}
	return b.String()
}
