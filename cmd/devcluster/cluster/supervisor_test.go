package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// With this variable the test binary is one of the components below instead.
const fakeComponentEnv = "DEVCLUSTER_FAKE_COMPONENT"

func TestMain(m *testing.M) {
	if os.Getenv(fakeComponentEnv) != "" {
		fakeComponent(os.Args[1], os.Args[2], os.Args[3])
	}
	os.Exit(m.Run())
}

// fakeComponent misbehaves as its name says; dir is where it remembers that it has run before.
func fakeComponent(name, port, dir string) {
	switch name {
	case "wordy": // fails with much to say
		for i := range 30 {
			fmt.Printf("line %d\n", i)
		}
		os.Exit(3)
	case "unlucky": // finds its port taken the first time
		marker := filepath.Join(dir, "marker")
		if _, err := os.Stat(marker); errors.Is(err, os.ErrNotExist) {
			if err := os.WriteFile(marker, nil, 0o600); err != nil {
				panic(err)
			}
			fmt.Println("listen tcp 127.0.0.1:" + port + ": bind: address already in use")
			os.Exit(1)
		}
	case "stubborn": // does not end when asked to
		signal.Ignore(syscall.SIGTERM)
	}
	http.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
	http.HandleFunc("/die", func(http.ResponseWriter, *http.Request) {
		fmt.Println("last words")
		os.Exit(4)
	})
	panic(http.ListenAndServe("127.0.0.1:"+port, nil))
}

func newTestSupervisor(t *testing.T) (*supervisor, chan error) {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	s := &supervisor{
		executable: executable,
		env:        append(os.Environ(), fakeComponentEnv+"=1"),
		logs:       t.TempDir(),
		client:     &http.Client{Timeout: 10 * time.Second},
		fail:       func(cause error) { failed <- cause },
		grace:      10 * time.Second,
		spawner:    newSpawner(),
	}
	t.Cleanup(s.stop)
	return s, failed
}

func newFake(t *testing.T, name string) component {
	dir := t.TempDir()
	return component{
		name:   name,
		args:   func(port int) []string { return []string{fmt.Sprint(port), dir} },
		health: func(port int) string { return localURL("http", port, "/healthz") },
	}
}

func TestStopLeavesNothing(t *testing.T) {
	s, failed := newTestSupervisor(t)
	for range 2 {
		if _, err := s.start(t.Context(), newFake(t, "good")); err != nil {
			t.Fatal(err)
		}
	}
	s.stop()
	for _, p := range s.processes {
		if err := p.cmd.Process.Signal(syscall.Signal(0)); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("process %d is there after stop: %v", p.cmd.Process.Pid, err)
		}
	}
	select {
	case err := <-failed:
		t.Errorf("stopping was taken for a failure: %v", err)
	default:
	}
}

func TestRestart(t *testing.T) {
	s, failed := newTestSupervisor(t)
	c := newFake(t, "good")
	port, err := s.start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	before := s.processes[0].cmd.Process.Pid
	if err := s.restart(t.Context(), c, port); err != nil {
		t.Fatal(err)
	}
	if !s.healthy(t.Context(), c.health(port)) || s.processes[1].cmd.Process.Pid == before {
		t.Error("it was not restarted on its port")
	}
	select {
	case err := <-failed:
		t.Errorf("a restart counts as an unexpected end: %v", err)
	default:
	}
	if err := s.restart(t.Context(), newFake(t, "absent"), port); err == nil {
		t.Error("a component that does not run was restarted")
	}
}

// A component that may be revived is, on its port, as often as that; then its end is the
// end of all.
func TestRevived(t *testing.T) {
	s, failed := newTestSupervisor(t)
	c := newFake(t, "good")
	c.revived = 2
	port, err := s.start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for range c.revived {
		p := s.running(c.name)
		if err := p.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-p.ended
		for deadline := time.Now().Add(startTimeout); s.running(c.name) == p ||
			!s.healthy(t.Context(), c.health(port)); time.Sleep(pollInterval) {
			if time.Now().After(deadline) {
				t.Fatal("it was not started again")
			}
		}
		select {
		case err := <-failed:
			t.Fatalf("its end counts: %v", err)
		default:
		}
	}
	if err := s.running(c.name).cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	var exit *exitError
	if err := <-failed; !errors.As(err, &exit) {
		t.Errorf("failed with %v", err)
	}
}

func TestStubbornComponentIsKilled(t *testing.T) {
	s, _ := newTestSupervisor(t)
	s.grace = 10 * time.Millisecond
	if _, err := s.start(t.Context(), newFake(t, "stubborn")); err != nil {
		t.Fatal(err)
	}
	s.stop()
	var exit *exec.ExitError
	if !errors.As(s.processes[0].err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("ended with %v, want a kill", s.processes[0].err)
	}
}

func TestTakenPortIsReplaced(t *testing.T) {
	s, _ := newTestSupervisor(t)
	if _, err := s.start(t.Context(), newFake(t, "unlucky")); err != nil {
		t.Fatal(err)
	}
	if len(s.processes) != 2 {
		t.Errorf("started %d times, want 2", len(s.processes))
	}
}

func TestFailedStartShowsTheEndOfTheLog(t *testing.T) {
	s, _ := newTestSupervisor(t)
	_, err := s.start(t.Context(), newFake(t, "wordy"))
	if err == nil {
		t.Fatal("a component that ends is no success")
	}
	for _, want := range []string{"wordy ended unexpectedly", "exit status 3", s.logFile("wordy"), "\nline 10\n", "\nline 29"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "line 9\n") {
		t.Errorf("the error has more than %d lines of the log:\n%v", tailLines, err)
	}
}

func TestUnexpectedEndIsReported(t *testing.T) {
	s, failed := newTestSupervisor(t)
	port, err := s.start(t.Context(), newFake(t, "mortal"))
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := s.client.Get(localURL("http", port, "/die")); err == nil {
		resp.Body.Close()
		t.Fatal("it lives")
	}
	err = <-failed
	if !strings.Contains(err.Error(), "mortal ended unexpectedly (exit status 4)") || !strings.Contains(err.Error(), "last words") {
		t.Errorf("got %v", err)
	}
}

func TestStartEndsWithItsContext(t *testing.T) {
	s, _ := newTestSupervisor(t)
	c := newFake(t, "good")
	c.health = func(port int) string { return localURL("http", port, "/absent") }
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("another component failed")
	time.AfterFunc(100*time.Millisecond, func() { cancel(cause) })
	if _, err := s.start(ctx, c); !errors.Is(err, cause) {
		t.Errorf("got error %v, want %v", err, cause)
	}
}
