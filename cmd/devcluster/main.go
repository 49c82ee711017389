// Command devcluster is a Kubernetes control plane in one file: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler, kwok and kubectl. It has a command that runs
// them together, with a small Git server beside them.
//
// It is a module of its own, so that the controller's module never sees k8s.io/kubernetes. Called by the name of
// kubectl (through a symbolic link) it is kubectl.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/component-base/version"

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
"devcluster up --help" for the images that misbehave on purpose.

"devcluster --version" prints the version of Kubernetes.`,
		Version: version.Get().GitVersion,
		Example: `  devcluster up --dir .dev/cluster &
  export KUBECONFIG=.dev/cluster/kubeconfig
  devcluster kubectl get nodes`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddGroup(
		&cobra.Group{ID: groupServe, Title: "Commands:"},
		&cobra.Group{ID: groupComponent, Title: "Components, as upstream has them:"},
	)
	root.AddCommand(newUpCommand(), newGitCommand(), newTrafficCommand(), newPrometheusCommand())
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

Pods become ready about a second after they are scheduled, whatever their image, and the
pods of Jobs complete a second later. Some tags misbehave on purpose:

  :broken   runs and never becomes ready
  :crash    becomes ready, fails three seconds later, and goes on as a crash loop
            does: back-off of 10s, 20s, 40s ... 5m, ready for three seconds between
  :pull     cannot be pulled: ImagePullBackOff

The pods of Jobs have more of them, which act a second after the pod has begun to run:

  :exit-N   the container ends with that exit code, 0 to 255
  :oom      the container is OOMKilled
  :evict    the node evicts the pod
  :hang     the pod goes on for ever, as until the deadline of its Job

All but :broken and :crash are also read at the end of a longer tag: :v2-exit-3. A pod with
restartPolicy OnFailure is restarted as after a crash. The scheduler is the real one: a pod
stays unschedulable if it asks for what no node has.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := lifetime(cmd, untilStdinEnds)
			defer stop()
			restart := make(chan os.Signal, 1)
			signal.Notify(restart, syscall.SIGHUP)
			o.Restart = restart
			return cluster.Run(ctx, o, func(r cluster.Ready) {
				fmt.Printf("devcluster is ready after %s: export KUBECONFIG=%s\n", r.After.Round(100*time.Millisecond), r.Kubeconfig)
			})
		},
	}
	cmd.Flags().StringVar(&o.Dir, "dir", "", "directory that the cluster lives in; made if absent")
	addUntilStdinEnds(cmd, &untilStdinEnds)
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
			ctx, stop := lifetime(cmd, false)
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
