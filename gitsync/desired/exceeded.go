package desired

import (
	"errors"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// ExceededCommits is what is known of commits that take more to render than they may. So they
// take it once, and not again at each push beside them. It is kept between syncs.
type ExceededCommits struct {
	key string // of the renderer
	// reads is what was read of the tip before it was too much, and err what was wrong.
	reads gittree.Reads
	err   error
	// older are commits in the history of the tip.
	older map[plumbing.Hash]State
}

// keptExceeded bounds the older commits.
const keptExceeded = 100

// of forgets all where the renderer has become another one.
func (e *ExceededCommits) of(r *Reader) *ExceededCommits {
	if key := r.Key(); e != nil && e.key != key {
		*e = ExceededCommits{key: key, older: map[plumbing.Hash]State{}}
	}
	return e
}

// again returns what was wrong with a tree, where all is the same that was read of it.
func (e *ExceededCommits) again(t *gittree.Tree) error {
	if e == nil || e.err == nil {
		return nil
	}
	same, err := e.reads.Unchanged(t)
	if err == nil && same {
		err = e.err
	}
	return err
}

// note keeps how the rendering of the tip went.
func (e *ExceededCommits) note(t *gittree.Tree, err error) {
	if e == nil || IsPassing(err) {
		return
	}
	e.reads, e.err = nil, nil
	if reads := t.Reads(); gittree.IsExceeded(err) && len(reads) > 0 {
		e.reads, e.err = reads, err
	}
}

// noteOlder keeps that an older commit takes too much.
func (e *ExceededCommits) noteOlder(commit plumbing.Hash, d State, err error) {
	if e == nil || !gittree.IsExceeded(err) {
		return
	}
	if len(e.older) >= keptExceeded {
		clear(e.older)
	}
	e.older[commit] = d
}

// Busy is an error of a [Renderer] that has no place for a folder now. A sync that meets
// it ends, so that it does not hold the goroutine of another source. It is repeated once
// there is a place.
type Busy interface {
	error
	// Free returns a channel that has a value when there is a place, which is kept for a
	// while. The channel is closed by Leave.
	Free() <-chan struct{}
	// Leave says that the rendering was repeated, or is not needed any more.
	Leave()
}

// IsPassing reports whether a rendering has failed for no reason of the commit's. The
// next one may go well, so nothing may be concluded of the commit.
func IsPassing(err error) bool {
	if _, ok := errors.AsType[Busy](err); ok {
		return true
	}
	p, ok := errors.AsType[*plan.Problem](err)
	return ok && p.Reason == v1alpha1.ReasonRendererFailed
}
