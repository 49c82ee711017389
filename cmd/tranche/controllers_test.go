package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// labelOwn is set on the GitSources of tests that have controllers of their own, or none.
// The shared controller leaves them alone.
const labelOwn = "test"

// shared is the controller of all tests that run at the same time. It starts with the
// first of them and ends with the last. No other controller for all sources runs
// meanwhile: tests that are not parallel are over, or come later.
var shared struct {
	mu    sync.Mutex
	users int
	stop  func() error
	// config has the providers of metrics, by name the address.
	config    string
	providers map[string]string
}

// share lets the shared controller run until the test ends.
func (s *env) share() {
	s.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.users == 0 {
		dir, err := os.MkdirTemp("", "tranche-storage-") // it outlives the test
		s.must(err)
		s.must(os.Setenv("KUBECONFIG", s.c.Kubeconfig))
		shared.config, shared.providers = filepath.Join(dir, "providers.yaml"), map[string]string{}
		s.must(os.WriteFile(shared.config, nil, 0o600))
		stop := start(dir, "--as", s.c.Controller.Impersonate.UserName, "--watch-label-selector", "!"+labelOwn,
			"--analysis-config", shared.config)
		shared.stop = func() error {
			defer os.RemoveAll(dir) //nolint:errcheck // a leftover does no harm
			return stop()
		}
	}
	shared.users++
	s.Cleanup(func() {
		shared.mu.Lock()
		defer shared.mu.Unlock()
		if shared.users--; shared.users > 0 {
			return
		}
		if err := shared.stop(); err != nil {
			s.Error(err)
		}
	})
}

// provider lets the shared controller know a Prometheus, and returns its name.
func provider(s *env, address string) string {
	s.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.providers[s.ns] = address
	s.must(os.WriteFile(shared.config, providers(shared.providers), 0o600))
	return s.ns
}

// providers is the file of --analysis-config with these addresses of Prometheus, by name.
func providers(addresses map[string]string) []byte {
	text := "providers:\n"
	for _, name := range slices.Sorted(maps.Keys(addresses)) {
		text += fmt.Sprintf("- {name: %s, type: prometheus, address: %q}\n", name, addresses[name])
	}
	return []byte(text)
}

// start runs `tranche controller` in this process, for the cluster that KUBECONFIG
// names, until stop is called.
func start(storage string, flags ...string) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	root := newRoot()
	root.SetArgs(append([]string{
		"controller", "--storage-path", storage, "--file-roots", os.TempDir(), "--file-write-roots", os.TempDir(),
		"--skip-name-validation", "--log-level", logLevel(),
	}, flags...))
	go func() { ended <- root.ExecuteContext(ctx) }()
	return sync.OnceValue(func() error {
		cancel()
		if err := <-ended; err != nil {
			return fmt.Errorf("the controller ended with %w", err)
		}
		return nil
	})
}

func logLevel() string {
	if testing.Verbose() {
		return "info"
	}
	return "error"
}

// control runs a controller with these flags in this process until the test ends. The
// test sets KUBECONFIG, and so is not parallel.
func (s *env) control(flags ...string) {
	s.Helper()
	stop := start(s.TempDir(), flags...)
	s.Cleanup(func() {
		if err := stop(); err != nil {
			s.Error(err)
		}
	})
}

// process runs a controller with these flags as a process until stop is called.
func (s *env) process(flags ...string) (stop func()) {
	s.Helper()
	cmd := exec.Command(os.Args[0], append([]string{
		"controller", "--as", s.c.Controller.Impersonate.UserName, "--storage-path", s.TempDir(), "--file-roots", os.TempDir(),
		"--file-write-roots", os.TempDir(), "--log-encoding", "console",
	}, flags...)...)
	cmd.Env = append(os.Environ(), asTranche+"=1", "KUBECONFIG="+s.c.Kubeconfig)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	s.must(cmd.Start())
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		if err := cmd.Wait(); err != nil {
			s.Errorf("the controller ended with %v", err)
		}
		if s.Failed() {
			s.Logf("the controller: %s", output.String())
		}
	})
	s.Cleanup(stop)
	return stop
}

// killable runs a controller with these flags as a process until it is killed.
func killable(s *env, flags ...string) (kill func()) {
	s.Helper()
	cmd := exec.Command(os.Args[0], append([]string{
		"controller", "--as", s.c.Controller.Impersonate.UserName, "--storage-path", s.TempDir(), "--file-roots", os.TempDir(),
		"--file-write-roots", os.TempDir(), "--log-encoding", "console", s.ownOnly(),
	}, flags...)...)
	cmd.Env = append(os.Environ(), asTranche+"=1", "KUBECONFIG="+s.c.Kubeconfig)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	s.must(cmd.Start())
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		if s.Failed() {
			s.Logf("the controller: %s", output.String())
		}
	})
	s.Cleanup(kill)
	return kill
}

// own marks a GitSource as one of the test's own controllers.
func (s *env) own(gs *v1alpha1.GitSource) { gs.Labels = map[string]string{labelOwn: s.ns} }

// ownOnly is the flag for a controller of such sources alone.
func (s *env) ownOnly() string { return "--watch-label-selector=" + labelOwn + "=" + s.ns }
