package sandbox

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
)

// ReasonLimitExceeded is of what takes more than it may, as in package gitsync.
const ReasonLimitExceeded = "LimitExceeded"

// reasonRendererFailed is of a worker that ended for no reason of the repository's.
const reasonRendererFailed = "RendererFailed"

const (
	// maxOutput is how many bytes a worker may write for one job, its questions included.
	maxOutput = 32 << 20
	// idleFor is how long a worker waits for the next job before it ends.
	idleFor = 5 * time.Minute
	// watchEvery is how often memory and CPU time of a worker are looked at.
	watchEvery = 50 * time.Millisecond
	// jobsOfWorker is after how many jobs a worker is replaced: kustomize keeps some of
	// what it has read.
	jobsOfWorker = 500
)

// wallFactor is how many times the CPU time of a rendering it may take by the clock. The
// folder is not at fault if the machine stalls. Tests, which share a machine with others,
// have a larger one.
var wallFactor time.Duration = 4

// Options of a Pool.
type Options struct {
	// Command starts a worker, which calls [Serve] with the Bounds.
	Command func(Bounds) *exec.Cmd
	// Workers is how many render at the same time, at least 2. One tenant has at most
	// all but one of them.
	Workers int
	// Memory and Timeout bound one rendering, see [Bounds]. A rendering that has not ended
	// after four times Timeout by the clock, and has used less CPU time, is ended and tried
	// again.
	Memory  int64
	Timeout time.Duration
	// Log says where workers cannot be sealed.
	Log logr.Logger
}

// Pool renders in workers. It is safe for use by several goroutines.
type Pool struct {
	options Options

	mu       sync.Mutex
	places   places
	idle     []*process
	closed   bool
	unsealed sync.Once
}

// NewPool returns a pool without workers; they are started as they are needed.
func NewPool(o Options) *Pool {
	return &Pool{options: o, places: newPlaces(o.Workers, o.Timeout/3)}
}

// Start ends all workers when ctx ends.
func (p *Pool) Start(ctx context.Context) error {
	<-ctx.Done()
	p.Close()
	return nil
}

// NeedLeaderElection: a standby renders, too, when it takes over.
func (*Pool) NeedLeaderElection() bool { return false }

// Close ends all workers. Renderings that run fail.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.places.close()
	for _, w := range p.idle {
		w.end(nil)
	}
	p.idle = nil
}

// busyError is of a rendering that has no place now. Once there is one, it is kept for the next
// rendering of its tenant.
type busyError struct {
	pool   *Pool
	tenant string
	free   chan struct{}
	left   bool
}

func (*busyError) Error() string { return "no renderer is free" }

// Free returns a channel that has a value once there is a place. It is closed by Leave.
func (e *busyError) Free() <-chan struct{} { return e.free }

// Leave is called when the rendering is not waited for any more. Its place is for others.
func (e *busyError) Leave() {
	e.pool.mu.Lock()
	defer e.pool.mu.Unlock()
	if e.left {
		return
	}
	e.left = true
	close(e.free)
	e.pool.places.leave(e)
	e.pool.share()
}

// Render is [manifest.Render] in a worker, for one tenant. The error of a rendering that
// takes more than its bounds is a [*plan.Problem] with [ReasonLimitExceeded]. If no place
// is free, Render waits for a moment at most. The error then has a method Free. It returns a
// channel with a value when it is worth another try, for which a place is kept for a while. It
// has a method Leave for when that is not needed any more.
func (p *Pool) Render(tenant string, fsys filesys.FileSystem, dir string, opts manifest.RenderOptions) ([]plan.Object, error) {
	w, err := p.take(tenant)
	if err != nil {
		return nil, err
	}
	defer p.giveBack(w)
	if w.process == nil {
		s, err := p.start()
		if err != nil {
			return nil, err
		}
		p.mu.Lock()
		if w.process = s; w.taken {
			s.end(errTakenAway)
		}
		p.mu.Unlock()
	}
	r, err := w.process.render(fsys, jobOf(dir, opts), &p.options)
	if errors.Is(err, errTakenAway) {
		return nil, p.park(tenant)
	}
	if err != nil {
		return nil, asProblem(err, dir)
	}
	return r.read(opts.Ignored)
}

// retire ends a worker that has waited for long.
func (p *Pool) retire(s *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, idle := range p.idle {
		if idle == s {
			p.idle = slices.Delete(p.idle, i, i+1)
			s.end(nil)
			return
		}
	}
}

// start starts a worker.
func (p *Pool) start() (*process, error) {
	cmd := p.options.Command(Bounds{Memory: p.options.Memory, Timeout: p.options.Timeout})
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting a renderer: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting a renderer: %w", err)
	}
	s := &process{cmd: cmd, done: make(chan struct{}), idle: time.NewTimer(0)}
	s.idle.Stop()
	cmd.Stderr = &s.said
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting a renderer: %w", err)
	}
	s.bounded = &io.LimitedReader{R: out, N: maxOutput}
	s.in, s.out = gob.NewDecoder(s.bounded), gob.NewEncoder(in)
	var m fromWorker
	if err := s.within(&p.options, func() error { return s.in.Decode(&m) }); err != nil || m.Hello == nil {
		s.end(nil)
		return nil, fmt.Errorf("starting a renderer: it says %q: %w", s.said.String(), errors.Join(err, s.err()))
	}
	if why := m.Hello.Unsealed; why != "" {
		p.unsealed.Do(func() {
			p.options.Log.Info("Renderers are not kept from the network and from files by the kernel", "because", why)
		})
	}
	return s, nil
}

// process is a worker. One goroutine at a time uses it.
type process struct {
	cmd     *exec.Cmd
	in      *gob.Decoder
	out     *gob.Encoder
	bounded *io.LimitedReader
	said    tail
	idle    *time.Timer
	jobs    int
	broken  bool

	ending sync.Once
	done   chan struct{} // closed once it has ended
	mu     sync.Mutex
	cause  error // why it was killed
}

// end kills the process, for a cause or nil, and waits for it.
func (s *process) end(cause error) {
	s.ending.Do(func() {
		s.mu.Lock()
		s.cause = cause
		s.mu.Unlock()
		_ = s.cmd.Process.Kill() // it may have ended
		go func() {
			_ = s.cmd.Wait() // it was killed
			close(s.done)
		}()
	})
}

// errExceeded is why a worker was killed, where that is the folder's.
type errExceeded string

func (e errExceeded) Error() string { return string(e) }

// errMemory is of a folder that takes too much memory.
const errMemory = errExceeded("rendering takes more memory than it may")

// errLate is why a worker was killed, where that may not be the folder's.
type errLate string

func (e errLate) Error() string { return string(e) }

// err returns why the process has ended.
func (s *process) err() error {
	s.end(nil)
	<-s.done
	s.mu.Lock()
	defer s.mu.Unlock()
	said := s.said.String()
	switch {
	case s.cause != nil:
		return s.cause
	case strings.Contains(said, "fatal error:") || strings.Contains(said, "SIGSEGV"): // how Go ends where it gets no memory
		return errMemory
	default:
		return fmt.Errorf("the renderer has ended: %s", s.cmd.ProcessState)
	}
}

// within does something with the process that ends when its time or its memory does.
func (s *process) within(o *Options, do func() error) error {
	over := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() { s.watch(o, over) })
	err := do()
	close(over)
	watcher.Wait()
	return err
}

func (s *process) watch(o *Options, over <-chan struct{}) {
	before, known := cpuOf(s.cmd.Process.Pid)
	patience := o.Timeout
	if known {
		patience *= wallFactor
	}
	late, look := time.NewTimer(patience), time.NewTicker(watchEvery)
	defer late.Stop()
	defer look.Stop()
	for {
		select {
		case <-over:
			return
		case <-late.C:
			if known {
				s.end(errLate(fmt.Sprintf("rendering has not ended after %s, and has used less than %s of CPU time: the machine is busy, or stalls",
					patience, o.Timeout)))
			} else {
				s.end(errExceeded(fmt.Sprintf("rendering takes longer than %s", o.Timeout)))
			}
			return
		case <-look.C:
			if residentOf(s.cmd.Process.Pid) > o.Memory+programSize {
				s.end(errMemory)
				return
			}
			if used, ok := cpuOf(s.cmd.Process.Pid); known && ok && used-before > o.Timeout {
				s.end(errExceeded(fmt.Sprintf("rendering takes more than %s of CPU time", o.Timeout)))
				return
			}
		}
	}
}

// programSize is what the program itself has in memory, beside its data.
const programSize = 64 << 20

// render has the worker do a job.
func (s *process) render(fsys filesys.FileSystem, j job, o *Options) (*result, error) {
	s.jobs++
	s.bounded.N = maxOutput
	var r *result
	err := s.within(o, func() (err error) {
		r, err = s.converse(fsys, j)
		return err
	})
	if err == nil {
		return r, nil
	}
	s.broken = true
	if s.bounded.N <= 0 {
		s.end(errExceeded(fmt.Sprintf("what is rendered has more than %d MiB", maxOutput>>20)))
	}
	return nil, s.err()
}

// converse gives the worker a job, and answers its questions until it has the result. A
// worker may write anything: kustomize runs in it on what a tenant has committed.
func (s *process) converse(fsys filesys.FileSystem, j job) (*result, error) {
	next := toWorker{Job: &j}
	for {
		var m fromWorker
		if err := s.out.Encode(next); err != nil {
			return nil, fmt.Errorf("writing to the renderer: %w", err)
		}
		if err := s.in.Decode(&m); err != nil {
			return nil, fmt.Errorf("reading from the renderer: %w", err)
		}
		switch {
		case m.Result != nil:
			return m.Result, nil
		case len(m.Questions) == 0:
			return nil, errors.New("the renderer says nothing")
		}
		next = toWorker{Answers: answersTo(m.Questions, fsys)}
	}
}

// asProblem says of which folder an error is.
func asProblem(err error, dir string) error {
	if e, ok := errors.AsType[errExceeded](err); ok {
		return &plan.Problem{
			Reason: ReasonLimitExceeded, Where: dir, Err: e,
			Hint: "make it smaller, or raise the controller's --max-render-memory or --max-render-time",
		}
	}
	return &plan.Problem{Reason: reasonRendererFailed, Where: dir, Err: err, Retry: true}
}

// tail keeps the first bytes that are written.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailSize = 4 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b[:min(len(b), tailSize-len(t.text))]...)
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

// Command returns how a worker of this very program is started: with these arguments
// before its bounds. It has no environment.
func Command(args ...string) (func(Bounds) *exec.Cmd, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	return func(b Bounds) *exec.Cmd {
		cmd := exec.Command(program, append(args, b.args()...)...) //nolint:gosec // the program itself
		cmd.Env = []string{"TMPDIR=" + os.TempDir()}
		return cmd
	}, nil
}
