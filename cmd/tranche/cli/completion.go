package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// completionTimeout is how long a person who pressed Tab waits at most.
const completionTimeout = 3 * time.Second

// completion completes a word with what the cluster has.
type completion func(ctx context.Context, at *Connection, args []string) ([]string, error)

// Complete makes a function of cobra of a completion. If the completion fails, it
// completes nothing.
func (c *Cluster) Complete(from completion) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		ctx, stop := context.WithTimeout(cmd.Context(), completionTimeout)
		defer stop()
		at, err := c.Connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		words, err := from(ctx, at, args)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		words = slices.DeleteFunc(words, func(word string) bool { return !strings.HasPrefix(word, begun) })
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteFlag completes the values of a flag of a command.
func (c *Cluster) CompleteFlag(cmd *cobra.Command, flag string, from completion) {
	if err := cmd.RegisterFlagCompletionFunc(flag, c.Complete(from)); err != nil {
		panic(err) // the command has the flag
	}
}

// CompleteNames completes the name of a release, as the first argument.
func (c *Cluster) CompleteNames(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.Complete(ReleaseNames)(cmd, args, begun)
}

// CompleteSources completes the flag --source.
func (c *Cluster) CompleteSources(cmd *cobra.Command) { c.CompleteFlag(cmd, "source", SourceNames) }

// ReleaseNames are the releases of the namespace, with what they wait for.
func ReleaseNames(ctx context.Context, at *Connection, _ []string) ([]string, error) {
	list, err := at.Releases(ctx, at.Namespace)
	var names []string
	for _, br := range list {
		names = append(names, br.Name+"\t"+br.Status.Reason)
	}
	return names, err
}

// SourceNames are the GitSources of the namespace, with the reason of Ready.
func SourceNames(ctx context.Context, at *Connection, _ []string) ([]string, error) {
	list, err := at.Sources(ctx, at.Namespace)
	var names []string
	for i := range list {
		names = append(names, list[i].Name+"\t"+ReadyOf(&list[i]).Reason)
	}
	return names, err
}

// namespaceNames are the namespaces of the cluster.
func namespaceNames(ctx context.Context, at *Connection, _ []string) ([]string, error) {
	var list corev1.NamespaceList
	if err := at.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing namespaces: %w", err)
	}
	var names []string
	for _, ns := range list.Items {
		names = append(names, ns.Name)
	}
	return names, nil
}

// OfRelease completes what a release has that the first argument names.
func OfRelease(names func(*v1alpha1.BatchRelease) []string) func(context.Context, *Connection, []string) ([]string, error) {
	return func(ctx context.Context, at *Connection, args []string) ([]string, error) {
		if len(args) == 0 {
			return nil, nil
		}
		br, err := at.Release(ctx, args[0])
		if err != nil {
			return nil, err
		}
		return names(br), nil
	}
}

// RevisionNames are the earlier revisions of a release, with how they ended.
func RevisionNames(br *v1alpha1.BatchRelease) (names []string) {
	for _, r := range br.Status.History {
		if r.Commit != "" {
			names = append(names, fmt.Sprintf("%s\t%s %s", r.Revision, r.Outcome, Absolute(&r.EndTime)))
		}
	}
	return names
}

// StepNames are the steps of a release, from the one that it is at.
func StepNames(br *v1alpha1.BatchRelease) (names []string) {
	for i, s := range br.Spec.Strategy.Steps {
		if int32(i) >= br.Status.CurrentStepIndex && br.Status.Phase != v1alpha1.PhaseCompleted {
			names = append(names, fmt.Sprintf("%d\t%s", i, s.Replicas.String()))
		}
	}
	return names
}
