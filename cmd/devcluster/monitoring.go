package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/cmd/devcluster/cluster"
	"github.com/tranche-dev/tranche/cmd/devcluster/traffic"
)

// lifetime returns a context that ends with an interrupt, and with the standard input
// where that is asked for.
func lifetime(cmd *cobra.Command, untilStdinEnds bool) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	if untilStdinEnds {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			stop()
		}()
	}
	return ctx, stop
}

func addUntilStdinEnds(cmd *cobra.Command, value *bool) {
	cmd.Flags().BoolVar(value, "until-stdin-ends", false,
		"end when the standard input does, as it does with the process at its other end, however that ends")
}

func newTrafficCommand() *cobra.Command {
	o := traffic.Options{Profiles: traffic.Default()}
	var untilStdinEnds bool
	cmd := &cobra.Command{
		Use:     "traffic --kubeconfig FILE",
		GroupID: groupServe,
		Short:   "Play the requests that the pods of a cluster serve, and export their metrics",
		Long: `Play the requests that the pods of a cluster serve, and export their metrics until
interrupted. The one line on stdout is the URL; URL/metrics has, per pod,

  http_requests_total{namespace,pod,code}
  http_request_duration_seconds{namespace,pod}    a histogram

They grow with time while the pod is ready, and begin at 0 with another pod and with
a restart of a container. Nothing is random: a pod that has been ready for t seconds
has served rate * t requests, and errors * rate * t of them have failed. Latencies are
distributed exponentially. Words of the image's tag change them, as in :v2-errors-slow:

  errors   a larger share fails
  slow     latencies are longer
  silent   there are no series

For a namespace and a tag they are changed at any time, and the change is taken back by:

  curl -X PUT URL/namespaces/shop/tags/v2-silent -d '{"silent": false, "errors": 0.2}'
  curl -X DELETE URL/namespaces/shop/tags/v2-silent

The fields are rate, errors, latency ("80ms") and silent; those left out are as the tag
has them.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := lifetime(cmd, untilStdinEnds)
			defer stop()
			return traffic.Serve(ctx, o, func(url string) { fmt.Println(url) })
		},
	}
	p := &o.Profiles
	cmd.Flags().StringVar(&o.Kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "of the cluster; $KUBECONFIG by default")
	cmd.Flags().StringVar(&o.Addr, "addr", "127.0.0.1:0", "address to listen on; port 0 is any free one")
	cmd.Flags().Float64Var(&p.Ordinary.Rate, "rate", p.Ordinary.Rate, "requests a second of each ready pod")
	cmd.Flags().Float64Var(&p.Ordinary.Errors, "errors", p.Ordinary.Errors, "share of the requests that fail")
	cmd.Flags().Float64Var(&p.Errors, "tag-errors", p.Errors, "share of the requests that fail with the tag errors")
	cmd.Flags().Var(&p.Ordinary.Latency, "latency", "mean latency")
	cmd.Flags().Var(&p.Slow, "tag-slow", "mean latency with the tag slow")
	addUntilStdinEnds(cmd, &untilStdinEnds)
	return cmd
}

func newPrometheusCommand() *cobra.Command {
	var o cluster.PrometheusOptions
	var untilStdinEnds bool
	cmd := &cobra.Command{
		Use:     "prometheus --dir DIR --scrape JOB=URL",
		GroupID: groupServe,
		Short:   "Run Prometheus until interrupted",
		Long: `Run Prometheus until interrupted, with its HTTP API on 127.0.0.1. The one line on stdout
is the URL. Series, configuration and log are in DIR, where a second run finds them again.
It has no web pages: they are not in the Go module that it is built from.`,
		Example: `  url=http://127.0.0.1:9090
  devcluster prometheus --dir .dev/prometheus --port 9090 --scrape traffic=http://127.0.0.1:8080/metrics &
  curl $url/api/v1/query --data-urlencode 'query=sum by (pod) (rate(http_requests_total[10s]))'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := lifetime(cmd, untilStdinEnds)
			defer stop()
			return cluster.RunPrometheus(ctx, o, func(url string) { fmt.Println(url) })
		},
	}
	cmd.Flags().StringVar(&o.Dir, "dir", "", "directory that it lives in; made if absent")
	cmd.Flags().IntVar(&o.Port, "port", 0, "port to listen on; 0 is any free one")
	cmd.Flags().StringToStringVar(&o.Scrape, "scrape", nil, "what to scrape: the name of a job, and the URL of its metrics")
	cmd.Flags().DurationVar(&o.Interval, "interval", time.Second, "time between two scrapes")
	cmd.Flags().StringVar(&o.Config, "config", "", "configuration file to use in place of --scrape and --interval")
	cmd.Flags().StringVar(&o.Program, "program", "", "binary of Prometheus; by default the file prometheus beside this one")
	addUntilStdinEnds(cmd, &untilStdinEnds)
	cmd.MarkFlagsMutuallyExclusive("config", "scrape")
	cmd.MarkFlagsMutuallyExclusive("config", "interval")
	if err := cmd.MarkFlagRequired("dir"); err != nil {
		panic(err)
	}
	return cmd
}
