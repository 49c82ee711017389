package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

//go:generate sh -c "go run . reference > ../../docs/cli.md"

// newReference prints docs/cli.md, which is never written by hand.
func newReference() *cobra.Command {
	return &cobra.Command{
		Use:    "reference",
		Short:  "Print all commands and flags as Markdown",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(cmd.OutOrStdout(), reference(cmd.Root()))
			return err
		},
	}
}

// reference is a chapter for each command.
func reference(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("<!-- Written by `tranche reference`: make generate -->\n# Command line\n\n")
	fmt.Fprintf(&b, "```\n%s\n```\n\nThe same program, called `kubectl-tranche` and on the PATH, is `kubectl tranche`.\n", root.Long)
	b.WriteString("Completion of commands, flags and names of releases: `source <(tranche completion bash)`; zsh, fish and PowerShell " +
		"likewise.\n")
	for _, c := range root.Commands() {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n```\n%s\n```\n", c.CommandPath(), cmp.Or(c.Long, c.Short))
		if c.Example != "" {
			fmt.Fprintf(&b, "\nExamples:\n\n```\n%s\n```\n", c.Example)
		}
		c.InitDefaultHelpFlag()
		fmt.Fprintf(&b, "\nUsage: `%s`\n\n```\n%s```\n", c.UseLine(), c.LocalFlags().FlagUsages())
	}
	return b.String()
}
