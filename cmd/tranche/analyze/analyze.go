package analyze

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/terminal"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/analysis"
	"github.com/tranche-dev/tranche/rollout/engine/verdict"
)

type options struct {
	prometheus, output string
	same, exitCode     bool
	windows            int
	seed               uint64
}

// New returns the command analyze.
func New() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "analyze NAME [PATH]",
		Short: "Try the analysis of a plan on past releases",
		Long: `Try the analysis of a plan before it is merged. The metrics of the plan in PATH are measured
over the windows of the last ten releases of BatchRelease NAME. The code of the controller
judges them. Each release has a line with the verdict. The last lines say which harm goes
unnoticed with the traffic of the newest release.

PATH is a folder, a kustomization or a file of the working tree; default: the current folder.
The times of the releases and of their gates come from the cluster. If the history has no time
of a gate, the duration in the plan is taken. Background metrics are measured from the begin of
each release to its end, in at most 500 windows. Metrics of web and job are left out: they measure
at a moment, and it is over. The oldest release of the history is not compared, since the
revision before it is not known.

With --same all pods run the stable revision. The pods are split at random, one part stands
for the update revision, and each failure is a false alarm. The seed is printed; the same seed
gives the same parts. Queries need $(pods) for that.

The server is the address in the plan, and its Secret is read as this user. A provider is
known to the controller alone: give its address with --prometheus.

The exit code is 0 if all was measured, and 1 if not. With --exit-code it is 2 if a release
would have failed that was completed.`,
		Example: `  tranche analyze web -n shop overlays/production --prometheus http://localhost:9090
  tranche analyze web -n shop --same --windows 50 --prometheus http://localhost:9090`,
		Args: cobra.RangeArgs(1, 2),
	}
	at := cli.AddCluster(c)
	f := c.Flags()
	f.StringVar(&o.prometheus, "prometheus", "", "address of the Prometheus to ask, instead of those in the plan")
	f.BoolVar(&o.same, "same", false, "compare pods of the stable revision with one another")
	f.IntVar(&o.windows, "windows", 20, "number of windows of each step, with --same")
	f.Uint64Var(&o.seed, "seed", 0, "seed of the random parts, with --same (default: another one each time)")
	f.BoolVar(&o.exitCode, "exit-code", false, "end with exit code 2 if a completed release would have failed")
	cli.AddOutput(c, &o.output, cli.OutputTable, cli.OutputJSON, cli.OutputYAML)
	c.ValidArgsFunction = at.CompleteNames
	c.RunE = func(cmd *cobra.Command, args []string) error {
		switch changed := cmd.Flags().Changed; {
		case o.same && o.exitCode:
			return errors.New("--same and --exit-code exclude each other")
		case !o.same && (changed("windows") || changed("seed")):
			return errors.New("--windows and --seed are for --same")
		case o.windows < 1 || o.windows > 1000:
			return fmt.Errorf("--windows %d: must be from 1 to 1000", o.windows)
		case o.same && !changed("seed"):
			o.seed = rand.Uint64N(1_000_000)
		}
		if err := cli.CheckOutput(o.output, cli.OutputTable, cli.OutputJSON, cli.OutputYAML); err != nil {
			return err
		}
		k, err := at.Connect()
		if err != nil {
			return err
		}
		return o.run(cmd.Context(), cmd.OutOrStdout(), k, args[0], append(args, ".")[1])
	}
	return c
}

func (o *options) run(ctx context.Context, w io.Writer, k *cli.Connection, name, path string) error {
	br, err := k.Release(ctx, name)
	if err != nil {
		return err
	}
	p, err := readPlan(path, br)
	if err != nil {
		return err
	}
	if err := p.prepare(o.prometheus, o.same); err != nil {
		return err
	}
	providers := analysis.NewProviders(analysis.Options{
		Client: k.Client, Now: time.Now, MayReach: func(netip.Addr) error { return nil }, // the user's own machine asks
	})
	defer providers.Close()
	ask := func(ctx context.Context, m verdict.Measurement) (verdict.Measured, error) {
		got, err := providers.Question(m, metav1.OwnerReference{}).Run(ctx)
		if err != nil {
			return got, fmt.Errorf("measuring %s of %s: %w", m.Metric, m.Revision, err)
		}
		return got, nil
	}
	result, err := o.try(ctx, k, p, br, ask)
	switch {
	case err != nil:
		return err
	case o.output == cli.OutputTable:
		_, err = io.WriteString(w, terminal.Printable(result.text()))
	default:
		err = cli.PrintValue(w, o.output, result)
	}
	if r, ok := result.(*Replay); err == nil && ok && o.exitCode && r.failsCompleted() {
		return cli.WithCode(cli.ExitFailed, errors.New("a release that was completed would have failed"))
	}
	return err
}

// result is a document, and its text for people.
type result interface{ text() string }

func (o *options) try(ctx context.Context, k *cli.Connection, p *tried, br *v1alpha1.BatchRelease, ask asker) (result, error) {
	if o.same {
		return o.trySame(ctx, k, p, br, ask)
	}
	return replayAll(ctx, p, br, ask)
}
