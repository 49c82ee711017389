package status

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/terminal"
	"github.com/tranche-dev/tranche/cmd/tranche/view"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

type statusOptions struct {
	watch   bool
	timeout time.Duration
	commit  string
	output  string
}

// outputSVG is the format of a picture.
const outputSVG = "svg"

var statusFormats = []string{cli.OutputTable, cli.OutputJSON, cli.OutputYAML, outputSVG}

func NewStatus() *cobra.Command {
	var o statusOptions
	c := &cobra.Command{
		Use:   "status NAME",
		Short: "Show where a release stands, and what moves it on",
		Long: `Show the state of a release: source, steps, ReplicaSets, approvals, what it waits for, and
the git commands that move it on. NAME is that of the BatchRelease or of its Deployment.

With --watch the picture is redrawn in place until the release is over; where the
output is no terminal, each change is a line. It waits at gates and pauses, too.

With --commit it ends with the release of that commit. A commit that the GitSource
refuses, or whose release was rolled back or superseded, is a failure (2). The approval
or the rollback in a refused commit may count all the same, as the message shows. The
commit is a failure even so, since its other changes are not applied. A commit
that reverts another one is not: it is complete when its revision runs (0). A commit that
changes nothing of the release, or came together with a later one, ends with the release
that there is. Whether a later commit has it in its history is read from the clone in
the current folder. After a commit that touches nothing of the GitSource, the end comes with
the next interval of the source, or at once with tranche sync.`,
		Example: `  tranche status web -n shop
  tranche status web -n shop -o svg > web.svg                                 # a picture, for a report
  tranche status web --watch --timeout 30m --commit "$(git rev-parse HEAD)"   # in CI, after a push`,
		Args: cobra.ExactArgs(1),
	}
	k := cli.AddCluster(c)
	f := c.Flags()
	f.BoolVarP(&o.watch, "watch", "w", false,
		"follow the release to its end; exit code 0 if it is complete, 2 if it failed or was rolled back")
	f.DurationVar(&o.timeout, "timeout", 0, "with --watch, how long at most; exit code 3 after that (default: no limit)")
	f.StringVar(&o.commit, "commit", "", "with --watch, what is not yet of this commit does not count as the end")
	cli.AddOutput(c, &o.output, statusFormats...)
	c.ValidArgsFunction = k.CompleteNames
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.check(); err != nil {
			return err
		}
		at, err := k.Connect()
		if err != nil {
			return err
		}
		return o.run(cmd, at, args[0])
	}
	return c
}

// run shows the release, once or until it is over. With --commit, the release may be still to
// come.
func (o *statusOptions) run(cmd *cobra.Command, at *cli.Connection, name string) error {
	br, err := at.Release(cmd.Context(), name)
	if err != nil && o.commit != "" && !isRefusal(err) {
		began := time.Now()
		br, err = awaitRelease(cmd.Context(), at, cmd.OutOrStdout(), *o, name)
		if o.timeout > 0 {
			o.timeout = max(lookEvery, o.timeout-time.Since(began))
		}
	}
	if err != nil {
		return err
	}
	name = br.Name
	look := func(ctx context.Context) (*releaseView, error) { return readView(ctx, at, name) }
	if o.watch {
		return watchStatus(cmd.Context(), cmd.OutOrStdout(), *o, look)
	}
	if o.output != cli.OutputTable && o.output != outputSVG {
		return printReleases(cmd.OutOrStdout(), []v1alpha1.BatchRelease{*br}, o.output, false, true, time.Now())
	}
	s, err := look(cmd.Context())
	if err != nil {
		return err
	}
	if o.output == outputSVG {
		_, err = io.WriteString(cmd.OutOrStdout(), view.NewRelease(&s.Facts).SVG())
		return err
	}
	_, err = io.WriteString(cmd.OutOrStdout(), s.text(terminal.StyleOf(cmd.OutOrStdout())))
	return err
}

func (o *statusOptions) check() error {
	switch {
	case o.timeout < 0:
		return errors.New("--timeout must not be negative")
	case !o.watch && (o.timeout > 0 || o.commit != ""):
		return errors.New("--timeout and --commit are for --watch")
	case o.watch && o.output != cli.OutputTable:
		return errors.New("--watch and --output exclude each other")
	case o.commit != "":
		if err := cli.CheckCommit(o.commit); err != nil {
			return err
		}
	}
	return cli.CheckOutput(o.output, statusFormats...)
}

// releaseView prints what is shown of a release.
type releaseView struct{ view.Facts }

// readView reads what is shown of a release.
func readView(ctx context.Context, at *cli.Connection, name string) (*releaseView, error) {
	f, err := view.Read(ctx, at, client.ObjectKey{Namespace: at.Namespace, Name: name}, time.Now())
	if err != nil {
		return nil, err
	}
	return &releaseView{*f}, nil
}
