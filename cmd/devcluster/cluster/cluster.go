// Package cluster runs a Kubernetes control plane as child processes of this one.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	serviceCIDR = "10.96.0.0/16"
	// usableTimeout is how long nodes and namespace may take once all components are healthy.
	usableTimeout = time.Minute
	// stopGrace is how long a component may take to end.
	stopGrace = 5 * time.Second
)

// Options say what Run brings up.
type Options struct {
	Dir   string // where the cluster lives
	Nodes int
	// AdmissionPlugins are enabled in the API server beside the default ones.
	AdmissionPlugins []string
	// Restart asks for a restart of the API server, each time something comes; nil: never.
	Restart <-chan os.Signal
}

// Ready says how to reach a cluster.
type Ready struct {
	Kubeconfig string        // absolute path
	After      time.Duration // since Run was called
}

// Run runs a cluster until the context is cancelled, and then returns nil. It calls ready
// once, when pods can become ready. It returns an error when the cluster does not come up
// or a component ends on its own. No child process is left in any case.
func Run(ctx context.Context, o Options, ready func(Ready)) (err error) {
	begun := time.Now()
	if o.Nodes < 1 || o.Nodes > maxNodes {
		return fmt.Errorf("%d nodes: there can be 1 to %d", o.Nodes, maxNodes)
	}
	d, err := openDirectory(o.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	c, err := newCredentials(d.pki())
	if err != nil {
		return err
	}
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this binary: %w", err)
	}

	runCtx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	s := &supervisor{
		executable: executable,
		env:        childEnv(os.Environ()),
		logs:       d.logs(),
		client:     c.healthClient(),
		fail:       fail,
		grace:      stopGrace,
		spawner:    newSpawner(),
	}
	defer s.stop()
	restart, err := bringUp(runCtx, s, d, c, o)
	if err != nil {
		return endOf(ctx, runCtx, err)
	}
	ready(Ready{Kubeconfig: d.kubeconfig(), After: time.Since(begun)})
	for {
		select {
		case <-runCtx.Done():
			return endOf(ctx, runCtx, nil)
		case <-o.Restart:
			if err := restart(runCtx); err != nil {
				return endOf(ctx, runCtx, err)
			}
		}
	}
}

// endOf tells why a run ended: nil when that was asked for, a component's end before anything that followed from it.
func endOf(ctx, runCtx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	var exit *exitError
	if errors.As(context.Cause(runCtx), &exit) {
		return exit
	}
	return err
}

// bringUp starts everything in order and returns when pods can become ready, with what restarts the API server.
func bringUp(ctx context.Context, s *supervisor, d *directory, c *credentials, o Options) (restart func(context.Context) error, err error) {
	// A program that waits for the file must not find the one of the last run.
	if err := os.Remove(d.kubeconfig()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("removing the old kubeconfig: %w", err)
	}
	f := newFiles(d)
	if err := c.write(f); err != nil {
		return nil, err
	}
	etcdPort, err := s.start(ctx, f.etcd())
	if err != nil {
		return nil, err
	}
	apiServer := f.apiServer(etcdPort, o.AdmissionPlugins)
	port, err := s.start(ctx, apiServer)
	if err != nil {
		return nil, err
	}
	server := localURL("https", port, "")
	if err := c.writeKubeconfigs(f, server); err != nil {
		return nil, err
	}
	admin := newKubeconfig(server, c.authority.pem, "admin", c.admin)
	client, err := newClient(admin)
	if err != nil {
		return nil, err
	}
	if err := bringUpRest(ctx, s, f, client, o.Nodes); err != nil {
		return nil, err
	}
	restart = func(ctx context.Context) error { return s.restart(ctx, apiServer, port) }
	return restart, writeKubeconfig(d.kubeconfig(), admin)
}

// bringUpRest starts what needs the API server, all at once, and waits until it is of use.
func bringUpRest(ctx context.Context, s *supervisor, f *files, client kubernetes.Interface, nodes int) error {
	g, groupCtx := errgroup.WithContext(ctx)
	for _, c := range []component{f.controllerManager(), f.scheduler(), f.kwok()} {
		g.Go(func() error {
			_, err := s.start(groupCtx, c)
			return err
		})
	}
	g.Go(func() error { return registerNodes(groupCtx, client, nodes) })
	if err := g.Wait(); err != nil {
		return err
	}
	return waitUsable(ctx, client, nodes)
}

func newClient(kubeconfig *clientcmdapi.Config) (kubernetes.Interface, error) {
	config, err := clientcmd.NewDefaultClientConfig(*kubeconfig, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("making the client's configuration: %w", err)
	}
	config.QPS = -1 // no limit
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return client, nil
}

// waitUsable waits until a pod created in the namespace default would be admitted, scheduled and played.
func waitUsable(ctx context.Context, client kubernetes.Interface, nodes int) error {
	ctx, cancel := context.WithTimeout(ctx, usableTimeout)
	defer cancel()
	for {
		err := checkUsable(ctx, client, nodes)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the cluster to become usable: %w", err)
		case <-time.After(pollInterval):
		}
	}
}

// checkUsable says what a pod would still wait for.
func checkUsable(ctx context.Context, client kubernetes.Interface, nodes int) error {
	// Without its service account the API server admits no pod.
	if _, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{}); err != nil {
		return fmt.Errorf("reading the service account default/default: %w", err)
	}
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing the nodes: %w", err)
	}
	n := 0
	for i := range list.Items {
		if usable(&list.Items[i]) {
			n++
		}
	}
	if n < nodes {
		return fmt.Errorf("%d of %d nodes are ready", n, nodes)
	}
	return nil
}

// childEnv is the environment of the components: ours, without what would configure them behind their flags' back.
// The components take KUBERNETES_SERVICE_HOST for a cluster that they run in, and etcd reads a variable per flag.
func childEnv(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		return strings.HasPrefix(v, "KUBERNETES_SERVICE_") || strings.HasPrefix(v, "ETCD_") || strings.HasPrefix(v, "KWOK_")
	})
}
