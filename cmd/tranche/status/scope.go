package status

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
)

// scope is what a list over releases and sources is about: its flags, and what it prints.
type scope struct {
	cluster       *cli.Cluster
	all           bool
	source, since string
	output        string
}

// addTo gives c the flags of a scope. The help says that things are shown, of whom
// besides the GitSource, and what counts for --since.
func (s *scope) addTo(c *cobra.Command, things, ofSource, counts string) {
	c.Args = cobra.MaximumNArgs(1)
	s.cluster = cli.AddCluster(c)
	f := c.Flags()
	f.BoolVarP(&s.all, "all-namespaces", "A", false, "show the "+things+" of all namespaces")
	f.StringVar(&s.source, "source", "", "show the "+things+" of this GitSource, NAME or NAMESPACE/NAME, "+ofSource)
	f.StringVar(&s.since, "since", "",
		"show what "+counts+" since then: how long ago (90m, 7d), a day (2026-07-01) or a time (2026-07-01T12:00:00Z)")
	c.MarkFlagsMutuallyExclusive("all-namespaces", "source")
	cli.AddOutput(c, &s.output, cli.OutputTable, cli.OutputJSON, cli.OutputYAML)
	s.cluster.CompleteSources(c)
	c.ValidArgsFunction = s.cluster.CompleteNames
}

// connect checks flags and args, and connects to the cluster. The time is that of --since.
func (s *scope) connect(args []string) (*cli.Connection, time.Time, error) {
	if err := cli.CheckOutput(s.output, cli.OutputTable, cli.OutputJSON, cli.OutputYAML); err != nil {
		return nil, time.Time{}, err
	}
	since, err := cli.ParseSince(s.since, time.Now())
	if err != nil {
		return nil, time.Time{}, err
	}
	if len(args) == 1 && (s.all || s.source != "") {
		return nil, time.Time{}, fmt.Errorf("%s: a name excludes --all-namespaces and --source; name the namespace with -n", args[0])
	}
	at, err := s.cluster.Connect()
	return at, since, err
}
