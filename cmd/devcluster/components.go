package main

import (
	"fmt"
	"os"
	_ "time/tzdata" // time zones of CronJobs, as in kube-apiserver's own main

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
	"sigs.k8s.io/kwok/pkg/utils/signals"

	"github.com/tranche-dev/tranche/cmd/devcluster/kubectl"
)

// component is a program of another project that this binary can be.
type component struct {
	name, short string
	run         func() // takes its arguments from os.Args, as the program's own main does
}

// components are made by their functions only when asked for. Several of them register
// flags and feature gates in process-wide tables, where they would get into each other's
// way.
var components = []component{
	{"etcd", "The store of the API server", runEtcd},
	{"kube-apiserver", "The API server", func() { runKubernetes(apiserver.NewAPIServerCommand) }},
	{"kube-controller-manager", "The native controllers", func() { runKubernetes(controllermanager.NewControllerManagerCommand) }},
	{"kube-scheduler", "The scheduler", func() { runKubernetes(func() *cobra.Command { return scheduler.NewSchedulerCommand() }) }},
	{"kwok", "Plays the nodes and their pods", runKwok},
	{"kubectl", "The command line; also when called by the name of kubectl", runKubectl},
}

// kubernetesFlags are the flags that Kubernetes' packages put into the process-wide set when they are imported. Its
// own commands look for them there; all other commands would offer them as theirs, and kwok falls over them.
var kubernetesFlags = pflag.CommandLine

func init() {
	pflag.CommandLine = pflag.NewFlagSet(os.Args[0], pflag.ContinueOnError)
}

// runKubernetes is the main function of the commands in k8s.io/kubernetes/cmd.
func runKubernetes(newCommand func() *cobra.Command) {
	pflag.CommandLine = kubernetesFlags
	os.Exit(cli.Run(newCommand()))
}

// walSegmentBytes is what etcd allocates ahead for its log, twice. Upstream's 64 MB are for disks
// that are slow to allocate, and are most of a small cluster's directory.
const walSegmentBytes = 8 << 20

func runEtcd() {
	wal.SegmentSizeBytes = walSegmentBytes
	etcdmain.Main(os.Args)
}

// runKubectl runs kubectl with the flags that its packages have registered.
func runKubectl() {
	pflag.CommandLine = kubernetesFlags
	kubectl.Run()
}

// runKwok is the main function of sigs.k8s.io/kwok/cmd/kwok.
func runKwok() {
	if err := executeKwok(); err != nil {
		fmt.Fprintln(os.Stderr, "kwok:", err)
		os.Exit(1)
	}
}

func executeKwok() error {
	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}

	ctx, _ := kwoklog.InitFlags(signals.SetupSignalContext(), flags)
	ctx, err := kwokconfig.InitFlags(ctx, flags)
	if err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	command := kwok.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(flags)
	return command.ExecuteContext(ctx)
}
