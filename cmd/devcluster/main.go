// Command devcluster is a Kubernetes control plane in one file: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler, kwok and kubectl. It has a command that runs
// them together, with a small Git server beside them.
//
// It is a module of its own, so that the controller's module never sees k8s.io/kubernetes. Called by the name of
// kubectl (through a symbolic link) it is kubectl.
package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/cmd/devcluster/cluster"
	"github.com/tranche-dev/tranche/cmd/devcluster/gitserver"
)

func main() {
	if filepath.Base(os.Args[0]) == "kubectl" {
		runKubectl()
		return
	}
	if err := newRootCommand().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "devcluster:", err)
		os.Exit(1)
	}
}

const (
	groupServe     = "serve"
	groupComponent = "component"
)

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "devcluster",
		Short: "A Kubernetes control plane on this machine, without containers",
		Long: `A Kubernetes control plane on this machine, without containers and without root.

The API server, the controllers and the scheduler are the real ones; nodes and
pods are played by kwok, so nothing is ever pulled or run. See
"devcluster up --help" for the images that misbehave on purpose.`,
		Example: `  devcluster up --dir .dev/cluster &
  export KUBECONFIG=.dev/cluster/kubeconfig
  devcluster kubectl get nodes`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddGroup(
		&cobra.Group{ID: groupServe, Title: "Commands:"},
		&cobra.Group{ID: groupComponent, Title: "Components, as upstream has them:"},
	)
	root.AddCommand(newUpCommand(), newGitCommand())
	for _, c := range components {
		root.AddCommand(newComponentCommand(c))
	}
	return root
}

func newUpCommand() *cobra.Command {
	var o cluster.Options
	var untilStdinEnds bool
	cmd := &cobra.Command{
		Use:     "up --dir DIR",
		GroupID: groupServe,
		Short:   "Run a cluster until interrupted",
		Long: `Run a cluster until interrupted. SIGHUP restarts its API server.

Everything listens on free ports of 127.0.0.1 and lives in DIR: DIR/kubeconfig is
there as soon as the one line on stdout says that the cluster is ready, DIR/logs has
a file per component. A second run on the same DIR finds everything again, on
other ports.

Pods become ready about a second after they are scheduled, whatever their image.
Two tags misbehave on purpose:

  :broken   runs and never becomes ready
  :crash    becomes ready, fails three seconds later, and goes on as a crash loop
            does: back-off of 10s, 20s, 40s ... 5m, ready for three seconds between`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if untilStdinEnds {
				go func() {
					_, _ = io.Copy(io.Discard, os.Stdin)
					stop()
				}()
			}
			restart := make(chan os.Signal, 1)
			signal.Notify(restart, syscall.SIGHUP)
			o.Restart = restart
			return cluster.Run(ctx, o, func(r cluster.Ready) {
				fmt.Printf("devcluster is ready after %s: export KUBECONFIG=%s\n", r.After.Round(100*time.Millisecond), r.Kubeconfig)
			})
		},
	}
	cmd.Flags().StringVar(&o.Dir, "dir", "", "directory that the cluster lives in; made if absent")
	cmd.Flags().BoolVar(&untilStdinEnds, "until-stdin-ends", false,
		"end when the standard input does, as it does with the process at its other end, however that ends")
	cmd.Flags().IntVar(&o.Nodes, "nodes", 5, "number of nodes, each with room for 1000 pods")
	cmd.Flags().StringSliceVar(&o.AdmissionPlugins, "enable-admission-plugins", nil,
		"admission plugins of the API server, beside those that are on by default")
	if err := cmd.MarkFlagRequired("dir"); err != nil {
		panic(err)
	}
	return cmd
}

func newGitCommand() *cobra.Command {
	var o gitserver.Options
	cmd := &cobra.Command{
		Use:     "git --dir DIR",
		GroupID: groupServe,
		Short:   "Serve the bare repositories of a directory over HTTP until interrupted",
		Long: `Serve the bare repositories of a directory over HTTP until interrupted, for fetches and
pushes: DIR/shop.git is URL/shop.git. The one line on stdout is the URL. It needs git.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return gitserver.Serve(ctx, o, func(url string) { fmt.Println(url) })
		},
	}
	cmd.Flags().StringVar(&o.Dir, "dir", "", "directory with the bare repositories")
	cmd.Flags().StringVar(&o.Addr, "addr", "127.0.0.1:0", "address to listen on; port 0 is any free one")
	cmd.Flags().StringVar(&o.Username, "username", "", "user name to ask for; needs --password")
	cmd.Flags().StringVar(&o.Password, "password", "", "password to ask for; needs --username")
	cmd.MarkFlagsRequiredTogether("username", "password")
	if err := cmd.MarkFlagRequired("dir"); err != nil {
		panic(err)
	}
	return cmd
}

func newComponentCommand(c component) *cobra.Command {
	return &cobra.Command{
		Use:                c.name,
		GroupID:            groupComponent,
		Short:              c.short,
		DisableFlagParsing: true, // its flags are its own
		Run: func(_ *cobra.Command, args []string) {
			os.Args = append([]string{c.name}, args...)
			c.run()
		},
	}
}
