// Package clustertest runs tests against a real control plane: kube-apiserver,
// kube-controller-manager, kube-scheduler and etcd, with kwok for the nodes,
// as devcluster brings them up. A package has one cluster, and its tests
// have a namespace each.
package clustertest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Cluster is a control plane with the CRDs and the admission policy installed.
type Cluster struct {
	Config *rest.Config
	// Controller acts as the controller's account, with the rights of config/cluster-admin.
	Controller *rest.Config
	Scheme     *runtime.Scheme
	Kubeconfig string
	// Client reads and writes the API server itself, with no cache.
	Client client.WithWatch
	// Minor is the version of the cluster: 36 for Kubernetes 1.36.
	Minor int

	root string
	bin  string // the folder of devcluster and kubectl
	dir  string
	cmd  *exec.Cmd
	keep bool

	monitoring *monitoring
}

// shared is the package's cluster.
var shared *Cluster

// parallel is how many tests run at the same time: they wait for pods, most of
// the time, and not for a processor.
const parallel = "8"

// Go collects garbage each time the heap has doubled. The heaps of a small cluster and of
// a test are small, so that is often. It takes a fifth of the processor time of the API
// server. Memory is cheaper here. GOGC in the environment is respected.
const (
	gcEnv       = "GOGC"
	testGC      = 400
	componentGC = "400"
	kubectlGC   = "off" // it ends before there is much to collect
)

// withGC is the environment of a process with a setting of its garbage collector.
func withGC(setting string) []string {
	env := os.Environ()
	if os.Getenv(gcEnv) == "" {
		env = append(env, gcEnv+"="+setting)
	}
	return env
}

// WithoutCluster is set in the environment of a test binary that a test runs as
// a process of its own, and that needs no cluster.
const WithoutCluster = "TRANCHE_TEST_WITHOUT_CLUSTER"

// KeepNamespaces is an option of [Main]: a namespace stays when its test has ended, unless
// something would go on happening there. To delete a namespace takes the API server a hundred
// requests. No controller of the package may work for a namespace of another test.
func KeepNamespaces(c *Cluster) { c.keep = true }

// Main runs a package's tests with one cluster, which it stops afterwards. The
// controllers' logs are shown with -v.
func Main(m *testing.M, options ...func(*Cluster)) int {
	flag.Parse()
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue {
		if err := p.Value.Set(parallel); err != nil {
			panic("setting -test.parallel: " + err.Error())
		}
	}
	if verbose() {
		ctrl.SetLogger(zap.New())
	} else {
		ctrl.SetLogger(logr.Discard())
	}
	if os.Getenv(gcEnv) == "" {
		debug.SetGCPercent(testGC)
	}
	if os.Getenv(WithoutCluster) != "" {
		return m.Run()
	}
	for _, name := range []string{"test.fuzz", "test.list"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return m.Run() // fuzz targets need no cluster, least of all one per worker
		}
	}
	c, err := start()
	if err != nil {
		fmt.Fprintln(os.Stderr, "clustertest:", err)
		return 1
	}
	defer c.stop()
	for _, option := range options {
		option(c)
	}
	shared = c
	return m.Run()
}

// verbose reports whether a reader has asked for details by -v. -json, too, sets it, to a value
// of its own. A program reads that, and wants results.
func verbose() bool { return testing.Verbose() && flag.Lookup("test.v").Value.String() == "true" }

// Shared returns the package's cluster.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	if shared == nil {
		t.Fatal("no cluster: TestMain must call clustertest.Main")
	}
	return shared
}

// readyWithin is how long a cluster may take to come up on a busy machine.
const readyWithin = 6 * time.Minute

// Start starts a cluster for one test, with flags of `devcluster up`, and stops it
// when the test ends. Use [Shared] unless the test needs such flags.
func Start(t testing.TB, flags ...string) *Cluster {
	t.Helper()
	c, err := start(flags...)
	if err != nil {
		t.Fatalf("starting a cluster with %v: %v", flags, err)
	}
	t.Cleanup(c.stop)
	return c
}

// StartEmpty does so, and installs nothing of Tranche.
func StartEmpty(t testing.TB, flags ...string) *Cluster {
	t.Helper()
	c, err := startEmpty(flags...)
	if err != nil {
		t.Fatalf("starting an empty cluster with %v: %v", flags, err)
	}
	t.Cleanup(c.stop)
	return c
}

func start(flags ...string) (*Cluster, error) {
	c, err := startEmpty(flags...)
	if err != nil {
		return nil, err
	}
	if err := c.install(); err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

func startEmpty(flags ...string) (*Cluster, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "tranche-cluster-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{root: root, dir: dir, Kubeconfig: filepath.Join(dir, "kubeconfig"), monitoring: &monitoring{}}
	if err := c.up(cmp.Or(os.Getenv(Programs), filepath.Join(root, "bin")), flags...); err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

// up starts the cluster with the programs of a folder, and connects.
func (c *Cluster) up(bin string, flags ...string) error {
	c.bin = bin
	binary := filepath.Join(bin, "devcluster")
	_, missing := os.Stat(binary)
	if _, err := os.Stat(filepath.Join(bin, "kubectl")); errors.Join(missing, err) != nil {
		return fmt.Errorf("the embedded cluster is not built: run `make devcluster` in %s; %s has none", c.root, bin)
	}
	cmd := exec.Command(binary, append([]string{"up", "--dir", c.dir, "--until-stdin-ends"}, flags...)...)
	cmd.Env = withGC(componentGC)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if _, err := cmd.StdinPipe(); err != nil { // it ends with this process, killed or not
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", binary, err)
	}
	c.cmd = cmd
	ready := make(chan bool, 1)
	go func() { ready <- bufio.NewScanner(stdout).Scan() }()
	select {
	case ok := <-ready:
		if !ok {
			return errors.Join(fmt.Errorf("the cluster did not come up: %s", stderr.String()), cmd.Wait())
		}
	case <-time.After(readyWithin):
		return fmt.Errorf("the cluster was not ready within %s: %s", readyWithin, stderr.String())
	}
	return c.connect()
}

// Upgrade stops a cluster and starts it again with the programs of a folder, on other ports. All
// that was stored is there. Clients and controllers of before have lost it.
func (c *Cluster) Upgrade(t testing.TB, bin string) {
	t.Helper()
	c.end()
	if err := c.up(bin); err != nil {
		t.Fatalf("starting the cluster again with %s: %v", bin, err)
	}
}

// Programs is the environment variable with the absolute path of the folder of devcluster and
// kubectl. The default is bin. `make matrix` sets it to those of other versions of Kubernetes.
const Programs = "TRANCHE_TEST_PROGRAMS"

// Root returns the folder of the repository, of whose modules the test is one.
func Root() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("finding go.mod: %w", err)
	}
	for dir := filepath.Dir(strings.TrimSpace(string(out))); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.tools.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.tools.mod above %s", strings.TrimSpace(string(out)))
		}
	}
}

func (c *Cluster) stop() {
	if c.monitoring.m != nil {
		c.monitoring.m.end()
	}
	c.end()
	_ = os.RemoveAll(c.dir)
}

func (c *Cluster) end() {
	if c.cmd != nil {
		_ = c.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
		_ = c.cmd.Wait()
	}
}

// controllerAccount is that of config/rbac, which config/policy knows.
const controllerAccount = "system:serviceaccount:tranche-system:tranche-controller"

func (c *Cluster) connect() error {
	var err error
	if c.Config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		return err
	}
	c.Config.QPS = -1
	c.Scheme = runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(c.Scheme), v1alpha1.AddToScheme(c.Scheme), c.readVersion()); err != nil {
		return err
	}
	c.Controller = rest.CopyConfig(c.Config)
	c.Controller.Impersonate.UserName = controllerAccount
	c.Client, err = client.NewWithWatch(c.Config, client.Options{Scheme: c.Scheme})
	return err
}

// install installs CRDs, rights and policy.
func (c *Cluster) install() error {
	// Tests whose sources name no account are those of config/cluster-admin.
	parts := [][]string{
		{"-f", "manager/namespace.yaml"}, {"-k", "crd"}, {"-k", "rbac"}, {"-f", "cluster-admin/applier_role.yaml"}, {"-k", "policy"},
	}
	for _, part := range parts {
		if out, err := c.kubectl("apply", "--server-side", part[0], filepath.Join(c.root, "config", part[1])); err != nil {
			return fmt.Errorf("installing config/%s: %w: %s", part[1], err, out)
		}
	}
	wait := []string{"wait", "--for=condition=Established", "--timeout=" + Within.String()}
	out, err := c.kubectl(append(wait, "crd/batchreleases.tranche.dev", "crd/gitsources.tranche.dev")...)
	if err != nil {
		return fmt.Errorf("waiting for the CRDs: %w: %s", err, out)
	}
	return nil
}

// readVersion asks the API server for its version.
func (c *Cluster) readVersion() error {
	d, err := discovery.NewDiscoveryClientForConfig(c.Config)
	if err != nil {
		return err
	}
	v, err := d.ServerVersion()
	if err != nil {
		return fmt.Errorf("asking for the version of the cluster: %w", err)
	}
	if c.Minor, err = strconv.Atoi(v.Minor); err != nil {
		return fmt.Errorf("reading the version of the cluster: %w", err)
	}
	return nil
}

func (c *Cluster) kubectl(args ...string) (string, error) { return c.kubectlWith("", args...) }

func (c *Cluster) kubectlWith(input string, args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(c.bin, "kubectl"), args...)
	cmd.Env = append(withGC(kubectlGC), "KUBECONFIG="+c.Kubeconfig)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Kubectl runs kubectl, and returns what it prints and whether it succeeded.
func (c *Cluster) Kubectl(t testing.TB, args ...string) (string, error) {
	t.Helper()
	return c.kubectl(args...)
}

// KubectlWith does so with an input.
func (c *Cluster) KubectlWith(t testing.TB, input string, args ...string) (string, error) {
	t.Helper()
	return c.kubectlWith(input, args...)
}

var namespaces atomic.Int32

// Namespace makes a namespace for one test. In it any user may change a held Deployment,
// so that the controller has something to correct. So may a controller that runs as an
// admin. [Cluster.Guard] ends that.
func (c *Cluster) Namespace(t testing.TB) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprintf("test-%d", namespaces.Add(1)), Labels: map[string]string{v1alpha1.LabelDrift: v1alpha1.DriftCorrect},
	}}
	if err := c.Client.Create(t.Context(), ns); err != nil {
		t.Fatalf("making namespace %s: %v", ns.Name, err)
	}
	t.Cleanup(func() {
		if c.keep && c.isStill(ns.Name) {
			return
		}
		if err := client.IgnoreNotFound(c.Client.Delete(context.Background(), ns)); err != nil {
			t.Errorf("deleting namespace %s: %v", ns.Name, err)
		}
		if err := c.releaseSources(ns.Name); err != nil {
			t.Error(err)
		}
	})
	return ns.Name
}

// releaseSources takes the finalizers off the GitSources of a namespace. Their controller has
// ended, so they would keep the namespace for good. Its deletion would be tried until the
// last test has ended, and each try reads and deletes some 60 kinds of objects.
func (c *Cluster) releaseSources(namespace string) error {
	var sources v1alpha1.GitSourceList
	err := c.Client.List(context.Background(), &sources, client.InNamespace(namespace))
	if err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) { // Tranche may be uninstalled
		return fmt.Errorf("listing the GitSources of namespace %s: %w", namespace, err)
	}
	for _, gs := range sources.Items {
		none := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		if err := client.IgnoreNotFound(c.Client.Patch(context.Background(), &gs, none)); err != nil {
			return fmt.Errorf("taking the finalizers off GitSource %s/%s: %w", gs.Namespace, gs.Name, err)
		}
	}
	return nil
}

// manyPods are so many that the pods of all tests could fill the nodes.
const manyPods = 20

// isStill reports whether nothing happens in a namespace when its controller has ended, and
// whether there is room for what it holds. An autoscaler writes events all the time, and a
// pod of the tag crash is restarted again and again.
func (c *Cluster) isStill(namespace string) bool {
	var scalers autoscalingv2.HorizontalPodAutoscalerList
	var pods corev1.PodList
	for _, list := range []client.ObjectList{&scalers, &pods} {
		if err := c.Client.List(context.Background(), list, client.InNamespace(namespace)); err != nil {
			return false
		}
	}
	crashes := func(p corev1.Pod) bool {
		return slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool { return strings.HasSuffix(c.Image, ":crash") })
	}
	return len(scalers.Items) == 0 && len(pods.Items) <= manyPods && !slices.ContainsFunc(pods.Items, crashes)
}

// Guard lets the whole of config/policy hold in a namespace.
func (c *Cluster) Guard(t testing.TB, namespace string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, v1alpha1.LabelDrift)
	if err := c.Client.Patch(t.Context(), ns, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatalf("taking the label off namespace %s: %v", namespace, err)
	}
}

// RestartAPIServer ends the API server and starts it again. Other tests that use the
// cluster meanwhile get errors: a test that does this is not parallel.
func (c *Cluster) RestartAPIServer(t testing.TB) {
	t.Helper()
	started := func() (string, error) {
		out, err := c.kubectl("get", "--raw", "/metrics")
		if err != nil {
			return "", fmt.Errorf("reading the API server's metrics: %w", err)
		}
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "process_start_time_seconds ") {
				return line, nil
			}
		}
		return "", errors.New("the API server does not say when it began")
	}
	before, err := started()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatalf("asking for a restart of the API server: %v", err)
	}
	Wait(t, "another API server", func() error {
		if now, err := started(); err != nil || now == before {
			return fmt.Errorf("it began %q, before %q: %w", now, before, err)
		}
		return nil
	})
}

// Refusal is an answer of an API server that refuses a request.
func Refusal(r *http.Request, code int32, reason metav1.StatusReason) *http.Response {
	text, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: code, Reason: reason, Message: "made by a test",
	})
	if err != nil {
		panic(err) // it has no field that cannot be encoded
	}
	return &http.Response{
		StatusCode: int(code), Status: fmt.Sprint(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)), ContentLength: int64(len(text)),
	}
}

// Within is how long a test waits for what must come. On a machine that is too busy, it waits longer.
const Within = 4 * time.Minute

// usualLoad is how many processes may want to run for each core, without a test that waits longer.
const usualLoad = 4

// slowdown is how many times longer a test waits: by the load of the last minute, where the
// system tells it.
func slowdown() float64 {
	var load float64
	text, err := os.ReadFile("/proc/loadavg")
	if err == nil {
		_, err = fmt.Sscan(string(text), &load)
	}
	if err != nil {
		return 1
	}
	return min(max(1, load/float64(usualLoad*goruntime.NumCPU())), 4)
}

// The pauses between two looks of a test. A short one finds at once what is nearly
// there; many tests that look so often for long would take the machine from the cluster.
const (
	shortestPause = 20 * time.Millisecond
	longestPause  = 500 * time.Millisecond
)

// Wait looks again and again until check returns nothing, and fails the test
// with its last answer if that does not come.
func Wait(t testing.TB, what string, check func() error) {
	t.Helper()
	lookUntil(t.Context(), t, what, check)
}

// WaitAtEnd does so in a cleanup of the test, too: the test's context has ended there.
func WaitAtEnd(t testing.TB, what string, check func() error) {
	t.Helper()
	lookUntil(context.Background(), t, what, check)
}

func lookUntil(ctx context.Context, t testing.TB, what string, check func() error) {
	t.Helper()
	began, pause := time.Now(), shortestPause
	for {
		err := check()
		if err == nil {
			return
		}
		if waited := time.Since(began); waited > Within && waited.Seconds() > Within.Seconds()*slowdown() {
			t.Fatalf("waiting for %s: %v", what, err)
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waiting for %s: %v", what, err)
		case <-time.After(pause):
			pause = min(pause*3/2, longestPause)
		}
	}
}
