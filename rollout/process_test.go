package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout"
	"github.com/tranche-dev/tranche/rollout/clustertest"
	"github.com/tranche-dev/tranche/rollout/fromgit"
)

// The environment of a test binary that runs the reconciler as a process of its own.
const (
	asController = "TRANCHE_TEST_CONTROLLER"     // the namespace to work for
	asUser       = "TRANCHE_TEST_CONTROLLER_AS"  // the user to impersonate
	withLog      = "TRANCHE_TEST_CONTROLLER_LOG" // not empty: log
)

// runController runs the reconciler for one namespace until SIGTERM, or until the test that
// started it has ended. It returns the exit code.
func runController(namespace string) int {
	if err := reconcileUntilEnd(namespace); err != nil {
		fmt.Fprintln(os.Stderr, "running the controller:", err)
		return 1
	}
	return 0
}

func reconcileUntilEnd(namespace string) error {
	ctrl.SetLogger(logr.Discard())
	if os.Getenv(withLog) != "" {
		ctrl.SetLogger(zap.New())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() { // standard input ends with the test
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	own, err := clientcmd.BuildConfigFromFlags("", os.Getenv(clientcmd.RecommendedConfigPathEnvVar))
	if err != nil {
		return err
	}
	own.QPS, own.Impersonate.UserName = -1, os.Getenv(asUser)
	fromGit := &fromgit.Releases{}
	mgr, err := ctrl.NewManager(own, managerOptions(scheme, namespace, fromGit))
	if err != nil {
		return err
	}
	if err := rollout.Add(mgr, rollout.Options{Concurrent: 50, FromGit: fromGit}); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// startProcess runs the reconciler for one namespace as a process of its own. It ends with
// the test, or by a signal that the returned function sends. A process that ends before that
// fails the test.
func startProcess(t testing.TB, c *clustertest.Cluster, namespace string) (end func(syscall.Signal)) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asController+"="+namespace, asUser+"="+c.Controller.Impersonate.UserName,
		clientcmd.RecommendedConfigPathEnvVar+"="+c.Kubeconfig)
	if testing.Verbose() {
		cmd.Env = append(cmd.Env, withLog+"=1")
	}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting the controller: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	over := false
	end = func(s syscall.Signal) {
		if over {
			return
		}
		over = true
		select {
		case err := <-ended:
			t.Errorf("the controller ended by itself: %v", err)
			return
		default:
		}
		_ = cmd.Process.Signal(s) // it may just have ended
		if err := <-ended; s == syscall.SIGTERM && err != nil {
			t.Errorf("the controller ended with %v", err)
		}
	}
	t.Cleanup(func() { end(syscall.SIGTERM) })
	return end
}
