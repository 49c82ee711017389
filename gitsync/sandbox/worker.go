package sandbox

import (
	"bytes"
	"encoding/gob"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
)

// Bounds of a worker.
type Bounds struct {
	// Memory is how many bytes of data it may have.
	Memory int64
	// Timeout is how much CPU time one rendering may take.
	Timeout time.Duration
}

// Serve makes the process a worker: it gives up what a worker may not have, and renders
// what the Pool asks for until in ends.
func Serve(in io.Reader, out io.Writer, b Bounds) error {
	if err := limit(b.Memory); err != nil {
		return fmt.Errorf("limiting memory: %w", err)
	}
	debug.SetGCPercent(workerGCPercent)
	runtime.GOMAXPROCS(1)
	first := hello{}
	http.DefaultTransport = sealedTransport{}
	if err := seal(); err != nil {
		first.Unsealed = err.Error()
	}
	w := &worker{in: gob.NewDecoder(in), out: gob.NewEncoder(out)}
	if err := w.out.Encode(fromWorker{Hello: &first}); err != nil {
		return fmt.Errorf("writing to the pool: %w", err)
	}
	for {
		var m toWorker
		switch err := w.in.Decode(&m); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading from the pool: %w", err)
		case m.Job == nil:
			return errors.New("the pool answers what was not asked")
		}
		// The pool kills a worker that takes too long, unless it has died itself.
		late := time.AfterFunc(wallFactor*b.Timeout+lateness, func() { os.Exit(1) })
		err := w.render(m.Job)
		late.Stop()
		if err != nil {
			return err
		}
	}
}

// workerGCPercent is how much the heap of a worker grows between collections. Kustomize leaves
// much garbage on a small heap. It renders in one goroutine. With several threads, the collections
// take turns with it, and a rendering takes a sixth more CPU and no less time.
const workerGCPercent = 200

// lateness is how much longer than its time a worker lives with no pool.
const lateness = 5 * time.Second

// sealedTransport dials nothing.
type sealedTransport struct{}

func (sealedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	return nil, fmt.Errorf("%s is not in the repository, and nothing else is read", r.URL.Redacted())
}

type worker struct {
	in  *gob.Decoder
	out *gob.Encoder
	err error // the pool does not answer
	// known are the answers of the job. A commit does not change, and kustomize asks a third of
	// its questions more than once.
	known map[question]answer
}

func (w *worker) render(j *job) error {
	var ignored []*plan.Problem
	w.known = map[question]answer{}
	opts := j.options()
	opts.Ignored = func(p *plan.Problem) { ignored = append(ignored, p) }
	objects, err := manifest.Render(&remoteTree{w}, j.Dir, opts)
	if w.err != nil {
		return w.err
	}
	r, err := resultOf(objects, ignored, err)
	if err != nil {
		r = &result{Faults: []fault{*faultOf(err)}}
	}
	if err := w.out.Encode(fromWorker{Result: r}); err != nil {
		return fmt.Errorf("writing to the pool: %w", err)
	}
	return nil
}

// ask asks the pool, once in a job. Callers do not change the answer.
func (w *worker) ask(op operation, path string) answer {
	q := question{op, path}
	if a, ok := w.known[q]; ok && op != storageErr {
		return a
	}
	w.askPool([]question{q})
	if w.err != nil {
		return answer{Err: faultOf(w.err)}
	}
	return w.known[q]
}

// askPool asks the pool, and keeps the answers. There may be fewer of them than questions.
func (w *worker) askPool(questions []question) {
	if w.err == nil {
		w.err = w.out.Encode(fromWorker{Questions: questions})
	}
	var m toWorker
	if w.err == nil {
		w.err = w.in.Decode(&m)
	}
	if w.err == nil && (len(m.Answers) == 0 || len(m.Answers) > len(questions)) {
		w.err = errors.New("the pool does not answer")
	}
	if w.err != nil {
		return
	}
	for i, a := range m.Answers {
		w.known[questions[i]] = a
	}
}

// mostAhead is how many paths are asked about ahead at the same time.
const mostAhead = 100

// Ahead asks all of these paths at once, as manifest.Render wants it. The pool and the worker wait
// for each other once, and not for each answer.
func (t *remoteTree) Ahead(paths []string) {
	var questions []question
	for _, p := range paths[:min(len(paths), mostAhead)] {
		for _, op := range []operation{exists, isDir, readFile} {
			if _, ok := t.known[question{op, p}]; !ok {
				questions = append(questions, question{op, p})
			}
		}
	}
	if len(questions) > 0 {
		t.askPool(questions)
	}
}

// remoteTree is the tree of a commit that the pool reads.
type remoteTree struct{ *worker }

var _ filesys.FileSystem = (*remoteTree)(nil)

// Err returns the first error of the pool's storer, as manifest.Render asks for it.
func (t *remoteTree) Err() error { return t.ask(storageErr, "").Err.err() }

func (t *remoteTree) ReadFile(p string) ([]byte, error) {
	a := t.ask(readFile, p)
	return bytes.Clone(a.Data), a.Err.err()
}

func (t *remoteTree) ReadDir(p string) ([]string, error) {
	a := t.ask(readDir, p)
	return slices.Clone(a.Names), a.Err.err()
}

func (t *remoteTree) Exists(p string) bool { return t.ask(exists, p).Yes }
func (t *remoteTree) IsDir(p string) bool  { return t.ask(isDir, p).Yes }

func (t *remoteTree) CleanedAbs(p string) (filesys.ConfirmedDir, string, error) {
	a := t.ask(cleanedAbs, p)
	return filesys.ConfirmedDir(a.Dir), a.File, a.Err.err()
}

// errNotHere is about what rendering does not do.
var errNotHere = errors.New("the tree of a commit is only read, file by file")

func (t *remoteTree) Open(string) (filesys.File, error)    { return nil, errNotHere }
func (t *remoteTree) Glob(string) ([]string, error)        { return nil, errNotHere }
func (t *remoteTree) Walk(string, filepath.WalkFunc) error { return errNotHere }
func (t *remoteTree) Create(string) (filesys.File, error)  { return nil, errNotHere }
func (t *remoteTree) Mkdir(string) error                   { return errNotHere }
func (t *remoteTree) MkdirAll(string) error                { return errNotHere }
func (t *remoteTree) RemoveAll(string) error               { return errNotHere }
func (t *remoteTree) WriteFile(string, []byte) error       { return errNotHere }

// Main is a worker's main function, with the arguments that [Command] has added.
func Main(args []string) error {
	var b Bounds
	f := flag.NewFlagSet("worker", flag.ContinueOnError)
	f.Int64Var(&b.Memory, "memory", 0, "bytes of data")
	f.DurationVar(&b.Timeout, "timeout", 0, "of one rendering")
	if err := f.Parse(args); err != nil {
		return fmt.Errorf("reading the bounds: %w", err)
	}
	return Serve(os.Stdin, os.Stdout, b)
}

func (b Bounds) args() []string {
	return []string{fmt.Sprintf("--memory=%d", b.Memory), "--timeout=" + b.Timeout.String()}
}
