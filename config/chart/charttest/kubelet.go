package charttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// Kubelet runs the pods of a namespace as processes of the program, with the arguments of
// their containers and as their accounts. The pods must have NoNode, so that no node of the
// embedded cluster plays them.
type Kubelet struct {
	t       testing.TB
	cluster *clustertest.Cluster
	// Program is the program that containers run.
	program, namespace string
	dir                string

	mu     sync.Mutex
	broken bool
	pods   map[types.UID]*process
	output map[string]string // of what has ended, by the account
}

// NoNode are values of the chart by which its pods are on no node.
const NoNode = "nodeSelector: {example.org/node: none}\n"

// process is a pod.
type process struct {
	cmd    *exec.Cmd
	output *bytes.Buffer
	ended  chan struct{}
}

// NewKubelet runs the pods of a namespace until the test ends.
func NewKubelet(t testing.TB, c *clustertest.Cluster, namespace, program string) *Kubelet {
	t.Helper()
	k := &Kubelet{
		t: t, cluster: c, program: program, namespace: namespace, dir: t.TempDir(),
		pods: map[types.UID]*process{}, output: map[string]string{},
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := k.sync(ctx); err != nil && ctx.Err() == nil {
				t.Log("kubelet:", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() {
		stop()
		<-done
		for _, p := range k.pods {
			p.end()
		}
		if t.Failed() {
			for account, text := range k.output {
				t.Logf("the last pod of account %s:\n%s", account, text)
			}
		}
	})
	return k
}

// Break ends all controllers, and starts none until [Kubelet.Repair]. Jobs run.
func (k *Kubelet) Break() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.broken = true
}

// Repair ends what Break began.
func (k *Kubelet) Repair() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.broken = false
}

// Output is what the last pod of an account that has ended has printed.
func (k *Kubelet) Output(account string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.output[account]
}

// sync starts pods, ends those that are gone, and says in their status how they are.
func (k *Kubelet) sync(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var list corev1.PodList
	if err := k.cluster.Client.List(ctx, &list, client.InNamespace(k.namespace)); err != nil {
		return err
	}
	there := map[types.UID]bool{}
	var errs []error
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.Spec.NodeName != "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		there[pod.UID] = pod.DeletionTimestamp == nil
		if there[pod.UID] {
			errs = append(errs, k.run(ctx, pod))
		}
	}
	for uid, p := range k.pods {
		if !there[uid] {
			p.end()
			delete(k.pods, uid)
		}
	}
	return errors.Join(errs...)
}

// run starts a pod, or says that it has ended.
func (k *Kubelet) run(ctx context.Context, pod *corev1.Pod) error {
	controller := pod.Spec.RestartPolicy == corev1.RestartPolicyAlways
	p := k.pods[pod.UID]
	if controller && k.broken {
		if p != nil {
			p.end()
			k.keep(pod, p)
		}
		return k.report(ctx, pod, corev1.PodPending, 0)
	}
	if p == nil {
		var err error
		if p, err = k.start(ctx, pod); err != nil {
			return err
		}
		k.pods[pod.UID] = p
		return k.report(ctx, pod, corev1.PodRunning, 0)
	}
	select {
	case <-p.ended:
		k.keep(pod, p)
		code := p.cmd.ProcessState.ExitCode()
		switch {
		case controller: // it is started again
			return nil
		case code == 0:
			return k.report(ctx, pod, corev1.PodSucceeded, code)
		}
		return k.report(ctx, pod, corev1.PodFailed, code)
	default:
		return nil
	}
}

func (k *Kubelet) keep(pod *corev1.Pod, p *process) {
	k.output[pod.Spec.ServiceAccountName] = p.output.String()
	delete(k.pods, pod.UID)
}

// report writes the status of a pod.
func (k *Kubelet) report(ctx context.Context, pod *corev1.Pod, phase corev1.PodPhase, code int) error {
	if pod.Status.Phase == phase && (phase != corev1.PodRunning || len(pod.Status.ContainerStatuses) > 0) {
		return nil
	}
	ready := corev1.ConditionFalse
	state := corev1.ContainerState{}
	switch phase {
	case corev1.PodRunning:
		ready = corev1.ConditionTrue
		state.Running = &corev1.ContainerStateRunning{StartedAt: metav1.Now()}
	case corev1.PodSucceeded, corev1.PodFailed:
		state.Terminated = &corev1.ContainerStateTerminated{ExitCode: int32(code), FinishedAt: metav1.Now()} //nolint:gosec // a code
	default:
		state.Waiting = &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}
	}
	status := corev1.PodStatus{
		Phase:      phase,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}, {Type: corev1.ContainersReady, Status: ready}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: pod.Spec.Containers[0].Name, State: state, Ready: phase == corev1.PodRunning, Image: pod.Spec.Containers[0].Image,
		}},
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	return client.IgnoreNotFound(k.cluster.Client.Status().Patch(ctx, pod, client.RawPatch(types.StrategicMergePatchType, patch)))
}

// start starts the process of a pod, with the token of its account.
func (k *Kubelet) start(ctx context.Context, pod *corev1.Pod) (*process, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Spec.ServiceAccountName}}
	request := &authenticationv1.TokenRequest{}
	if err := k.cluster.Client.SubResource("token").Create(ctx, account, request); err != nil {
		return nil, fmt.Errorf("token of %s: %w", account.Name, err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: k.cluster.Config.Host, CertificateAuthorityData: k.cluster.Config.CAData}
	config.AuthInfos["c"] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "c"}
	config.CurrentContext = "c"
	kubeconfig := filepath.Join(k.dir, string(pod.UID))
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		return nil, err
	}
	p := &process{output: &bytes.Buffer{}, ended: make(chan struct{})}
	p.cmd = exec.Command(k.program, k.arguments(pod)...)
	p.cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // its code is what counts
	}()
	return p, nil
}

// arguments are those of a pod, for a process that shares ports and folders with others.
func (k *Kubelet) arguments(pod *corev1.Pod) []string {
	var list []string
	for _, arg := range pod.Spec.Containers[0].Args {
		flag, _, _ := strings.Cut(arg, "=")
		switch flag {
		case "--metrics-bind-address", "--health-probe-bind-address", "--webhook-address":
			arg = flag + "=127.0.0.1:0"
		case "--storage-path":
			arg = flag + "=" + filepath.Join(k.dir, "data-"+string(pod.UID))
		case "--leader-elect":
			list = append(list, "--leader-election-namespace="+pod.Namespace)
		}
		list = append(list, arg)
	}
	return list
}

// end ends a process as a kubelet does.
func (p *process) end() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-p.ended:
	case <-time.After(30 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}
