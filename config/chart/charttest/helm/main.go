// Command helm installs, upgrades and rolls back a chart, as helm does. It is for the tests of
// another Go module, which does not have Helm as a library.
package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/kube"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

const usage = "helm install|upgrade NAMESPACE NAME CHART VALUES, or helm rollback NAMESPACE NAME REVISION"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "helm:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 4 {
		return errors.New(usage)
	}
	verb, namespace, name := args[0], args[1], args[2]
	flags := genericclioptions.NewConfigFlags(false) // of KUBECONFIG
	flags.Namespace = &namespace
	c := action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler))
	if err := c.Init(flags, namespace, ""); err != nil {
		return err
	}
	if verb == "rollback" {
		return rollback(c, name, args[3])
	}
	if len(args) != 5 || verb != "install" && verb != "upgrade" {
		return errors.New(usage)
	}
	chart, err := loader.Load(args[3])
	if err != nil {
		return err
	}
	values, err := loader.LoadValues(strings.NewReader(args[4]))
	if err != nil {
		return err
	}
	if verb == "install" {
		a := action.NewInstall(c)
		a.ReleaseName, a.Namespace, a.CreateNamespace, a.Timeout, a.WaitStrategy = name, namespace, true, time.Minute, kube.HookOnlyStrategy
		_, err = a.Run(chart, values)
		return err
	}
	a := action.NewUpgrade(c)
	a.Namespace, a.Timeout, a.WaitStrategy = namespace, time.Minute, kube.HookOnlyStrategy
	a.ResetThenReuseValues, a.ServerSideApply = true, "auto"
	_, err = a.Run(name, chart, values)
	return err
}

func rollback(c *action.Configuration, name, revision string) error {
	a := action.NewRollback(c)
	var err error
	if a.Version, err = strconv.Atoi(revision); err != nil {
		return err
	}
	a.Timeout, a.WaitStrategy, a.ServerSideApply = time.Minute, kube.HookOnlyStrategy, "auto"
	return a.Run(name)
}
