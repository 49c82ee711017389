package cluster_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
)

// patience is for what must happen; steadiness is for what must not.
const (
	patience   = 3 * time.Minute
	steadiness = 5 * time.Second
)

// binary is the devcluster to test. It takes minutes to build, so the tests do not.
func binary(t *testing.T) string {
	t.Helper()
	path := os.Getenv("DEVCLUSTER")
	if path == "" {
		path = "../../../bin/devcluster"
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v; run 'make bin/devcluster' first, or set DEVCLUSTER to one", err)
	}
	return path
}

// run is a running `devcluster up`.
type run struct {
	cmd      *exec.Cmd
	stdout   *bufio.Reader
	stderr   bytes.Buffer
	children []int
	client   kubernetes.Interface
}

// up starts a cluster and waits until it says that it is ready.
func up(t *testing.T, dir string) *run {
	t.Helper()
	r := &run{cmd: exec.Command(binary(t), "up", "--dir", dir, "--nodes", "3")}
	r.cmd.Stderr = &r.stderr
	stdout, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.stdout = bufio.NewReader(stdout)
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Ended by now, unless the test failed; then its children should not stay either.
		if r.cmd.ProcessState == nil {
			_ = r.cmd.Process.Signal(syscall.SIGTERM)
			_ = r.cmd.Wait()
		}
	})
	line, err := r.stdout.ReadString('\n')
	if err != nil {
		t.Fatalf("it ended before it was ready: %v\n%s", r.cmd.Wait(), r.stderr.String())
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if !strings.Contains(line, "KUBECONFIG="+kubeconfig) {
		t.Errorf("the line does not tell the kubeconfig: %s", line)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1 // the tests poll
	if r.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if r.children = childrenOf(t, r.cmd.Process.Pid); len(r.children) != 5 {
		t.Errorf("%d children, want etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok", len(r.children))
	}
	return r
}

// wait waits for the end and returns the exit code, having checked that nothing is left and nothing more was said.
func (r *run) wait(t *testing.T) int {
	t.Helper()
	rest, err := io.ReadAll(r.stdout)
	if err != nil {
		t.Fatal(err)
	}
	if len(rest) > 0 {
		t.Errorf("more than one line on stdout: %s", rest)
	}
	var exit *exec.ExitError
	if err := r.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	eventually(t, "all children are gone", func(context.Context) (bool, error) {
		return !slices.ContainsFunc(r.children, alive), nil
	})
	return r.cmd.ProcessState.ExitCode()
}

func childrenOf(t *testing.T, parent int) []int {
	t.Helper()
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		t.Fatal(err)
	}
	var children []int
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if fields[1] != strconv.Itoa(parent) {
			continue
		}
		pid, err := strconv.Atoi(fields[0])
		if err != nil {
			t.Fatal(err)
		}
		children = append(children, pid)
	}
	slices.Sort(children) // in the order of their start
	return children
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestUp(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	r := up(t, dir)
	t.Run("a second one on the same directory is refused", func(t *testing.T) { refused(t, dir) })
	t.Run("kubectl", func(t *testing.T) { kubectl(t, dir) })
	t.Run("beside each other", func(t *testing.T) {
		t.Run("pods", func(t *testing.T) { pods(t, r.client) })
		t.Run("jobs", func(t *testing.T) { jobs(t, r.client) })
		t.Run("monitoring", func(t *testing.T) { monitoring(t, dir) })
	})
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := r.wait(t); code != 0 {
		t.Errorf("stopping it exits %d\n%s", code, r.stderr.String())
	}
	t.Run("again", func(t *testing.T) { again(t, dir) })
	t.Run("killed", func(t *testing.T) { killed(t, dir) })
}

func refused(t *testing.T, dir string) {
	out, err := exec.Command(binary(t), "up", "--dir", dir).CombinedOutput()
	if err == nil || !strings.Contains(string(out), dir+" is in use by another devcluster") {
		t.Errorf("got %v\n%s", err, out)
	}
}

func kubectl(t *testing.T, dir string) {
	link := filepath.Join(t.TempDir(), "kubectl")
	if err := os.Symlink(binary(t), link); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) []byte {
		cmd := exec.Command(link, args...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(dir, "kubeconfig"), "HOME="+t.TempDir())
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("kubectl %s: %v", strings.Join(args, " "), err)
		}
		return out
	}
	var version struct {
		ClientVersion, ServerVersion struct{ GitVersion string }
	}
	if err := json.Unmarshal(run("version", "--output=json"), &version); err != nil {
		t.Fatal(err)
	}
	if v := version.ServerVersion.GitVersion; v == "" || v != version.ClientVersion.GitVersion || strings.Contains(v, "$") {
		t.Errorf("versions are %+v; was it built with the -ldflags of the Makefile?", version)
	}

	kustomization := "configMapGenerator:\n- name: made\n  literals: [key=value]\n"
	base := t.TempDir()
	if err := os.WriteFile(filepath.Join(base, "kustomization.yaml"), []byte(kustomization), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := string(run("apply", "-k", base)); !strings.HasPrefix(out, "configmap/made-") || !strings.HasSuffix(out, " created\n") {
		t.Errorf("apply -k says %q", out)
	}
}

func pods(t *testing.T, client kubernetes.Interface) {
	t.Parallel()
	for _, d := range []*appsv1.Deployment{
		newDeployment("good", "app:1", 3), newDeployment("bad", "app:broken", 1), newDeployment("ugly", "app:crash", 1),
	} {
		if _, err := client.AppsV1().Deployments(metav1.NamespaceDefault).Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "good is available", available(client, "good", 3))
	eventually(t, "ugly is available", available(client, "ugly", 1))
	eventually(t, "ugly is not available any more", available(client, "ugly", 0))
	eventually(t, "ugly has restarted", func(ctx context.Context) (bool, error) {
		list, err := podsOf(ctx, client, "ugly")
		return err == nil && len(list) == 1 && list[0].Status.ContainerStatuses[0].RestartCount >= 1, err
	})
	eventually(t, "bad runs", func(ctx context.Context) (bool, error) {
		list, err := podsOf(ctx, client, "bad")
		return err == nil && len(list) == 1 && list[0].Status.Phase == corev1.PodRunning, err
	})
	never(t, "bad is available", available(client, "bad", 1))

	// The deletion is in the foreground for the Deployment: it stays until its pods are
	// gone.
	foreground := metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}
	if err := client.AppsV1().Deployments(metav1.NamespaceDefault).Delete(t.Context(), "ugly", foreground); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the deleted pod is gone", func(ctx context.Context) (bool, error) {
		list, err := podsOf(ctx, client, "ugly")
		return len(list) == 0, err
	})
}

// again finds what was there before, survives the end of etcd, and then ends because another component does.
func again(t *testing.T, dir string) {
	r := up(t, dir)
	eventually(t, "good is still available", available(r.client, "good", 3))
	etcd, apiServer := r.children[0], r.children[1]
	if err := syscall.Kill(etcd, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "etcd is started again", func(context.Context) (bool, error) {
		r.children = childrenOf(t, r.cmd.Process.Pid)
		return len(r.children) == 5 && !slices.Contains(r.children, etcd), nil
	})
	eventually(t, "the cluster works again", func(ctx context.Context) (bool, error) {
		err := r.client.AppsV1().Deployments(metav1.NamespaceDefault).Delete(ctx, "good", metav1.DeleteOptions{})
		return err == nil || apierrors.IsNotFound(err), nil
	})
	// A controller manager that is still starting ends with the API server, or before it.
	eventually(t, "the garbage collector works", func(ctx context.Context) (bool, error) {
		list, err := podsOf(ctx, r.client, "good")
		return err == nil && len(list) == 0, nil
	})
	if err := syscall.Kill(apiServer, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code := r.wait(t); code != 1 {
		t.Errorf("exits %d, want 1", code)
	}
	if said := r.stderr.String(); !strings.Contains(said,
		"kube-apiserver ended unexpectedly (signal: killed); the end of "+filepath.Join(dir, "logs")) {
		t.Errorf("it says only: %s", said)
	}
}

func killed(t *testing.T, dir string) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends the children of a killed process")
	}
	r := up(t, dir)
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	r.wait(t)
}

func newDeployment(name, image string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: image}}},
			},
		},
	}
}

func podsOf(ctx context.Context, client kubernetes.Interface, name string) ([]corev1.Pod, error) {
	list, err := client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// available is the condition that so many pods of a Deployment are.
func available(client kubernetes.Interface, name string, n int32) wait.ConditionWithContextFunc {
	return func(ctx context.Context) (bool, error) {
		d, err := client.AppsV1().Deployments(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		return err == nil && d.Status.AvailableReplicas == n, err
	}
}

func eventually(t *testing.T, what string, condition wait.ConditionWithContextFunc) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, condition); err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
}

func never(t *testing.T, what string, condition wait.ConditionWithContextFunc) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, steadiness, true, condition); !wait.Interrupted(err) {
		t.Fatalf("%s: %v", what, err)
	}
}
