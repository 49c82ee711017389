package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	startAttempts = 3
	startTimeout  = 5 * time.Minute
	pollInterval  = 50 * time.Millisecond
	// tailLines is how much of a dead component's log is shown.
	tailLines = 20
	// portTaken is what every component says when another process listens on its port.
	portTaken = "address already in use"
)

// component is a program to run.
type component struct {
	name string
	// program is the file to run; empty: this binary, which takes the name for its first argument.
	program string
	port    int // to listen on; 0: any free one
	// args says how to run it, listening on the given port of 127.0.0.1.
	args func(port int) []string
	// health is the URL that answers 200 as soon as the component works on that port.
	health func(port int) string
	// revived is how often it is started again when it ends on its own. The others need
	// not notice: they ask again.
	revived int
}

// supervisor runs components as child processes.
type supervisor struct {
	executable string
	env        []string
	logs       string
	client     *http.Client      // asks for health
	fail       func(cause error) // called when a component ends without having been asked to
	grace      time.Duration     // how long a component may take to end when asked to
	spawner    *spawner

	mu        sync.Mutex
	ports     map[int]bool // that were chosen
	stopped   bool
	processes []*process // in the order of their start
}

// errStopped is the answer to a start after everything was stopped.
var errStopped = errors.New("everything is stopped")

// process is a component that was started.
type process struct {
	name     string
	log      string
	cmd      *exec.Cmd
	stopping atomic.Bool
	ended    chan struct{} // closed when it has ended
	err      error         // how it ended; valid once ended is closed
}

// start runs a component, waits until it is healthy, and returns its port. If another process takes the port
// first, start chooses another port.
func (s *supervisor) start(ctx context.Context, c component) (int, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout,
		fmt.Errorf("%s is not healthy after %s; see %s", c.name, startTimeout, s.logFile(c.name)))
	defer cancel()
	for attempt := 1; ; attempt++ {
		port, err := s.choosePort(c.port)
		if err != nil {
			return 0, fmt.Errorf("starting %s: %w", c.name, err)
		}
		p, err := s.spawn(c, port)
		if err != nil {
			return 0, fmt.Errorf("starting %s: %w", c.name, err)
		}
		if err = s.waitHealthy(ctx, p, c.health(port)); err == nil {
			go s.watch(p, c, port)
			return port, nil
		}
		var exit *exitError
		if attempt == startAttempts || !errors.As(err, &exit) || !strings.Contains(exit.tail, portTaken) {
			return 0, err
		}
	}
}

// choosePort returns a port that no other component was given. Two that start at the same
// time would find the same one free, and one would answer for the health of the other.
func (s *supervisor) choosePort(wanted int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ports == nil {
		s.ports = map[int]bool{}
	}
	for {
		port, err := freePort(wanted)
		if err != nil {
			return 0, err
		}
		if wanted != 0 || !s.ports[port] {
			s.ports[port] = true
			return port, nil
		}
	}
}

// restart ends a component and starts it again, on the same port.
func (s *supervisor) restart(ctx context.Context, c component, port int) error {
	p := s.running(c.name)
	if p == nil {
		return fmt.Errorf("restarting %s: it does not run", c.name)
	}
	p.stop(s.grace)
	p, err := s.spawn(c, port)
	if err != nil {
		return fmt.Errorf("restarting %s: %w", c.name, err)
	}
	if err := s.waitHealthy(ctx, p, c.health(port)); err != nil {
		return err
	}
	go s.watch(p, c, port)
	return nil
}

// running returns the process of a component; nil where there is none.
func (s *supervisor) running(name string) *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range slices.Backward(s.processes) {
		if p.name == name && !p.stopping.Load() {
			return p
		}
	}
	return nil
}

func (s *supervisor) logFile(name string) string { return filepath.Join(s.logs, name+".log") }

// spawn starts a component on a port, with a new log.
func (s *supervisor) spawn(c component, port int) (*process, error) {
	log, err := os.Create(s.logFile(c.name))
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own
	p := &process{name: c.name, log: log.Name(), ended: make(chan struct{})}
	program, args := s.executable, append([]string{c.name}, c.args(port)...)
	if c.program != "" {
		program, args = c.program, args[1:]
	}
	p.cmd = exec.Command(program, args...)
	p.cmd.Env = s.env
	p.cmd.Stdout, p.cmd.Stderr = log, log

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, errStopped
	}
	if err := s.spawner.start(p.cmd); err != nil {
		return nil, err
	}
	s.processes = append(s.processes, p)
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// waitHealthy polls the URL until it answers 200 or the process has ended.
func (s *supervisor) waitHealthy(ctx context.Context, p *process, url string) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.ended:
			return p.exitError()
		case <-tick.C:
			if s.healthy(ctx, url) {
				return nil
			}
		}
	}
}

func (s *supervisor) healthy(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// watch reports a process that ends before it was asked to, and one that may be started
// again as often as that only after that.
func (s *supervisor) watch(p *process, c component, port int) {
	for left := c.revived; ; left-- {
		<-p.ended
		if p.stopping.Load() {
			return
		}
		exit := p.exitError()
		if left <= 0 {
			s.fail(exit)
			return
		}
		next, err := s.revive(c, port)
		switch {
		case errors.Is(err, errStopped):
			return
		case err != nil:
			s.fail(errors.Join(exit, err))
			return
		}
		p = next
	}
}

// revive starts a component again that has ended, on its port.
func (s *supervisor) revive(c component, port int) (*process, error) {
	p, err := s.spawn(c, port)
	if err != nil {
		return nil, fmt.Errorf("starting %s again: %w", c.name, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	var exit *exitError
	if err := s.waitHealthy(ctx, p, c.health(port)); err != nil && !errors.As(err, &exit) { // one that has ended is looked at again
		return nil, fmt.Errorf("starting %s again: %w", c.name, err)
	}
	return p, nil
}

// stop ends all processes, the last started first, and returns when none is left.
func (s *supervisor) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	for _, p := range slices.Backward(s.processes) {
		p.stop(s.grace)
	}
}

func (p *process) stop(grace time.Duration) {
	p.stopping.Store(true)
	// Neither signal can fail in a way that matters: a process that is not there has ended.
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(grace):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// exitError says that a process ended, and what it wrote last.
type exitError struct {
	name, log, tail string
	err             error // nil: with status 0
}

func (p *process) exitError() *exitError {
	e := &exitError{name: p.name, log: p.log, err: p.err}
	if data, err := os.ReadFile(p.log); err == nil {
		e.tail = lastLines(string(data), tailLines)
	}
	return e
}

func (e *exitError) Error() string {
	how := "exit status 0"
	if e.err != nil {
		how = e.err.Error()
	}
	return fmt.Sprintf("%s ended unexpectedly (%s); the end of %s:\n%s", e.name, how, e.log, e.tail)
}

func (e *exitError) Unwrap() error { return e.err }

// lastLines is the end of a text, n lines at most.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
