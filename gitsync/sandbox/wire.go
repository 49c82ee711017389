package sandbox

import (
	"errors"
	"fmt"
	"io/fs"

	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
)

// toWorker is what a Pool writes to a worker: a job, or the answers to the first of its questions.
type toWorker struct {
	Job     *job
	Answers []answer
}

// job is a folder to render.
type job struct {
	Dir, Skip string
	Bases     []base
	// RemoteBases: others may be named than those in Bases.
	RemoteBases bool
}

// base is a remote base, and the folder that it is in.
type base struct {
	manifest.RemoteBase
	Dir string
}

func jobOf(dir string, opts manifest.RenderOptions) job {
	j := job{Dir: dir, Skip: opts.Skip, RemoteBases: opts.Bases != nil}
	for b, at := range opts.Bases {
		j.Bases = append(j.Bases, base{b, at})
	}
	return j
}

// options are what [jobOf] was given.
func (j *job) options() manifest.RenderOptions {
	o := manifest.RenderOptions{Skip: j.Skip}
	if j.RemoteBases {
		o.Bases = map[manifest.RemoteBase]string{}
	}
	for _, b := range j.Bases {
		o.Bases[b.RemoteBase] = b.Dir
	}
	return o
}

// answer is what the file system says of a path.
type answer struct {
	Data  []byte
	Names []string
	Yes   bool
	Dir   string // of CleanedAbs
	File  string
	Err   *fault
}

// fromWorker is what a worker writes: how it is sealed, first; questions; or what a
// job has come to.
type fromWorker struct {
	Hello     *hello
	Questions []question
	Result    *result
}

// hello is the first word of a worker.
type hello struct {
	// Unsealed is why the kernel does not keep the worker from anything; empty where
	// it does.
	Unsealed string
}

type operation int

const (
	readFile operation = iota + 1
	readDir
	exists
	isDir
	cleanedAbs
	storageErr
)

// question is about a path of the commit.
type question struct {
	Op   operation
	Path string
}

// result of a job: objects, what is wrong, or which remote bases are missing.
type result struct {
	Objects []object
	Ignored []fault
	Faults  []fault
	Listed  bool // the faults are [plan.Problems], and not one problem or error
	Missing []manifest.RemoteBase
}

type object struct {
	File string
	JSON []byte
}

// fault is an error. It keeps only the part of the chain that callers ask for.
type fault struct {
	Text                string
	Absent, Submodule   bool
	Problem, Retry      bool
	Reason, Where, Hint string
}

func faultOf(err error) *fault {
	if err == nil {
		return nil
	}
	f := fault{Absent: errors.Is(err, fs.ErrNotExist), Submodule: errors.Is(err, manifest.ErrSubmodule), Text: err.Error()}
	if p, ok := errors.AsType[*plan.Problem](err); ok {
		f.Problem, f.Retry, f.Reason, f.Where, f.Hint, f.Text = true, p.Retry, p.Reason, p.Where, p.Hint, ""
		if p.Err != nil {
			f.Text = p.Err.Error()
		}
	}
	return &f
}

// saidError is an error of the other process, in its words.
type saidError struct {
	text string
	is   error
}

func (e *saidError) Error() string { return e.text }
func (e *saidError) Unwrap() error { return e.is }

func (f *fault) err() error {
	if f == nil {
		return nil
	}
	e := &saidError{text: f.Text}
	switch {
	case f.Absent:
		e.is = fs.ErrNotExist
	case f.Submodule:
		e.is = manifest.ErrSubmodule
	}
	if !f.Problem {
		return e
	}
	return &plan.Problem{Reason: f.Reason, Where: f.Where, Hint: f.Hint, Retry: f.Retry, Err: e}
}

// problem is the fault as one, whatever it was.
func (f *fault) problem() *plan.Problem {
	if p, ok := errors.AsType[*plan.Problem](f.err()); ok {
		return p
	}
	return &plan.Problem{Reason: plan.ReasonRenderFailed, Err: f.err()}
}

// resultOf is what [manifest.Render] has returned.
func resultOf(objects []plan.Object, ignored []*plan.Problem, err error) (*result, error) {
	r := &result{}
	for _, p := range ignored {
		r.Ignored = append(r.Ignored, *faultOf(p))
	}
	if list, ok := errors.AsType[plan.Problems](err); ok {
		r.Listed = true
		for _, p := range list {
			r.Faults = append(r.Faults, *faultOf(p))
		}
		return r, nil
	}
	if e, ok := errors.AsType[*manifest.MissingBasesError](err); ok {
		r.Missing = e.Bases
		return r, nil
	}
	if err != nil {
		r.Faults = []fault{*faultOf(err)}
		return r, nil
	}
	for _, o := range objects {
		data, err := o.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("encoding %s of %s: %w", o, o.File, err)
		}
		r.Objects = append(r.Objects, object{o.File, data})
	}
	return r, nil
}

// read returns what [manifest.Render] had returned.
func (r *result) read(ignored func(*plan.Problem)) ([]plan.Object, error) {
	for i := range r.Ignored {
		if ignored != nil {
			ignored(r.Ignored[i].problem())
		}
	}
	if r.Listed {
		var ps plan.Problems
		for i := range r.Faults {
			ps = append(ps, r.Faults[i].problem())
		}
		return nil, ps
	}
	if len(r.Faults) > 0 {
		return nil, r.Faults[0].err()
	}
	if len(r.Missing) > 0 {
		return nil, &manifest.MissingBasesError{Bases: r.Missing}
	}
	objects := make([]plan.Object, 0, len(r.Objects))
	for _, o := range r.Objects {
		decoded, err := manifest.ObjectOf(o.JSON, o.File)
		if err != nil {
			return nil, fmt.Errorf("decoding an object of %s: %w", o.File, err)
		}
		objects = append(objects, decoded)
	}
	return objects, nil
}

// One message has answers to at most so many questions, and few more bytes of files. A worker may ask
// for more than fits into memory.
const (
	mostAnswers = 500
	enoughData  = 256 << 10
)

// answersTo asks a file system. It answers one question in any case.
func answersTo(questions []question, fsys filesys.FileSystem) (answers []answer) {
	size := 0
	for i := range questions[:min(len(questions), mostAnswers)] {
		a := answerTo(&questions[i], fsys)
		answers = append(answers, a)
		if size += len(a.Data); size > enoughData || len(a.Names) > 0 {
			break
		}
	}
	return answers
}

func answerTo(q *question, fsys filesys.FileSystem) answer {
	var a answer
	var err error
	switch q.Op {
	case readFile:
		a.Data, err = fsys.ReadFile(q.Path)
	case readDir:
		a.Names, err = fsys.ReadDir(q.Path)
	case exists:
		a.Yes = fsys.Exists(q.Path)
	case isDir:
		a.Yes = fsys.IsDir(q.Path)
	case cleanedAbs:
		var dir filesys.ConfirmedDir
		dir, a.File, err = fsys.CleanedAbs(q.Path)
		a.Dir = string(dir)
	case storageErr:
		if f, ok := fsys.(interface{ Err() error }); ok {
			err = f.Err()
		}
	default:
		err = fmt.Errorf("%d is no question", q.Op)
	}
	a.Err = faultOf(err)
	return a
}
