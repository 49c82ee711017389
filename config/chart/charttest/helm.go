package charttest

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/kube"
	release "helm.sh/helm/v4/pkg/release/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// Helm does what the command helm does, with the flags --namespace and --timeout.
type Helm struct {
	testing.TB
	Cluster   *clustertest.Cluster
	Namespace string
}

// hookWithin is how long a hook may take.
const hookWithin = 10 * time.Minute

// configuration is what an action works with. It is made for each: it caches what it knows of
// the cluster.
func (h Helm) configuration() *action.Configuration {
	h.Helper()
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig, flags.Namespace = &h.Cluster.Kubeconfig, &h.Namespace
	c := action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler))
	if err := c.Init(flags, h.Namespace, ""); err != nil {
		h.Fatal(err)
	}
	c.HookOutputFunc = func(_, _, _ string) io.Writer { return h.Output() }
	return c
}

func (h Helm) values(text string) map[string]any {
	h.Helper()
	values, err := loader.LoadValues(strings.NewReader(text))
	if err != nil {
		h.Fatal(err)
	}
	return values
}

// Install is `helm install NAME CHART --create-namespace`, with values in YAML.
func (h Helm) Install(name, chart, values string, options ...func(*action.Install)) error {
	h.Helper()
	c, err := loader.Load(chart)
	if err != nil {
		return err
	}
	a := action.NewInstall(h.configuration())
	a.ReleaseName, a.Namespace, a.CreateNamespace, a.Timeout, a.WaitStrategy = name, h.Namespace, true, hookWithin, kube.HookOnlyStrategy
	for _, o := range options {
		o(a)
	}
	_, err = a.Run(c, h.values(values))
	return err
}

// Upgrade is `helm upgrade NAME CHART --reuse-values`, with further values in YAML.
func (h Helm) Upgrade(name, chart, values string, options ...func(*action.Upgrade)) error {
	h.Helper()
	c, err := loader.Load(chart)
	if err != nil {
		return err
	}
	a := action.NewUpgrade(h.configuration())
	a.Namespace, a.Timeout, a.WaitStrategy, a.ReuseValues, a.ServerSideApply = h.Namespace, hookWithin, kube.HookOnlyStrategy, true, "auto"
	for _, o := range options {
		o(a)
	}
	_, err = a.Run(name, c, h.values(values))
	return err
}

// Rollback is `helm rollback NAME REVISION`.
func (h Helm) Rollback(name string, revision int) error {
	h.Helper()
	a := action.NewRollback(h.configuration())
	a.Version, a.Timeout, a.WaitStrategy, a.ServerSideApply = revision, hookWithin, kube.HookOnlyStrategy, "auto"
	return a.Run(name)
}

// Uninstall is `helm uninstall NAME`.
func (h Helm) Uninstall(name string, options ...func(*action.Uninstall)) error {
	h.Helper()
	a := action.NewUninstall(h.configuration())
	a.Timeout, a.WaitStrategy = hookWithin, kube.StatusWatcherStrategy
	for _, o := range options {
		o(a)
	}
	_, err := a.Run(name)
	return err
}

// Status returns the status of a release, such as deployed.
func (h Helm) Status(name string) string {
	h.Helper()
	found, err := action.NewStatus(h.configuration()).Run(name)
	if err != nil {
		return err.Error()
	}
	r, ok := found.(*release.Release)
	if !ok {
		return fmt.Sprintf("%T", found)
	}
	return r.Info.Status.String()
}
