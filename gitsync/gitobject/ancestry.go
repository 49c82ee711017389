package gitobject

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/signature"
)

// Precedence has what is known of pairs of commits, and is kept between syncs. It says
// whether the first is in the history of the second, or is the second itself.
type Precedence map[order]bool

// Precedes also counts a commit that says the same and has its signature written in
// another way: an approval is used once.
func (p Precedence) Precedes(ctx context.Context, s storer.EncodedObjectStorer, commit, tip plumbing.Hash) (bool, error) {
	return p.answer(ctx, s, order{commit, tip, true})
}

// PrecedesItself counts the commit alone, with the signature that it has.
func (p Precedence) PrecedesItself(ctx context.Context, s storer.EncodedObjectStorer, commit, tip plumbing.Hash) (bool, error) {
	return p.answer(ctx, s, order{commit, tip, false})
}

func (p Precedence) answer(ctx context.Context, s storer.EncodedObjectStorer, pair order) (bool, error) {
	if known, ok := p[pair]; ok {
		return known, nil
	}
	yes, err := searchHistory(ctx, s, pair)
	if err == nil && p != nil {
		if len(p) >= keptPrecedence {
			clear(p)
		}
		p[pair] = yes
	}
	return yes, err
}

// order is a question about two commits.
type order struct {
	commit, tip plumbing.Hash
	// twins: a twin of the commit in the history of the tip counts, see [areTwins].
	twins bool
}

// keptPrecedence bounds it.
const keptPrecedence = 1000

// IsInHistory reports whether a commit is in the history of a tip, or is the tip. A
// commit there that says the same, with its signature written in another way, counts too.
func IsInHistory(ctx context.Context, s storer.EncodedObjectStorer, commit, tip plumbing.Hash) (bool, error) {
	return searchHistory(ctx, s, order{commit, tip, true})
}

// searchHistory walks from both commits in turn, since the one is mostly close to the
// other, and a whole history is long. The dates of commits do not count: their authors
// set them.
func searchHistory(ctx context.Context, s storer.EncodedObjectStorer, pair order) (bool, error) {
	commit, tip := pair.commit, pair.tip
	down, up := newWalk(tip), newWalk(commit)
	c, err := object.GetCommit(s, commit)
	if err != nil {
		return false, gittree.Missing("commit", commit, err)
	}
	for len(down.queue) > 0 && !down.seen[commit] {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if up.seen[tip] { // and so the tip is in the history of the commit
			return false, nil
		}
		at, err := down.next(s)
		if err != nil {
			return false, err
		}
		if pair.twins {
			if twins, err := areTwins(s, c, at); err != nil || twins {
				return twins, err
			}
		}
		if _, err := up.next(s); err != nil {
			return false, err
		}
	}
	return down.seen[commit], nil
}

// areTwins reports whether two commits differ in nothing but how their signatures are
// written.
func areTwins(s storer.EncodedObjectStorer, a, b *object.Commit) (bool, error) {
	if a.TreeHash != b.TreeHash || a.Message != b.Message || !slices.Equal(a.ParentHashes, b.ParentHashes) {
		return false, nil
	}
	one, err := Payload(s, a.Hash)
	if err != nil {
		return false, err
	}
	other, err := Payload(s, b.Hash)
	return one == other, err
}

// walk goes through a history, nearest commits first.
type walk struct {
	queue []plumbing.Hash
	seen  map[plumbing.Hash]bool
}

// next goes to the next commit, nil where there is none.
func (w *walk) next(s storer.EncodedObjectStorer) (*object.Commit, error) {
	if len(w.queue) == 0 {
		return nil, nil
	}
	at := w.queue[0]
	w.queue = w.queue[1:]
	c, err := object.GetCommit(s, at)
	if err != nil {
		return nil, gittree.Missing("commit", at, err)
	}
	for _, p := range c.ParentHashes {
		if !w.seen[p] {
			w.seen[p] = true
			w.queue = append(w.queue, p)
		}
	}
	return c, nil
}

func newWalk(from plumbing.Hash) *walk {
	return &walk{queue: []plumbing.Hash{from}, seen: map[plumbing.Hash]bool{from: true}}
}

// Payload names what a commit says, however its signature is written: by the object
// that it would be without it.
func Payload(s storer.EncodedObjectStorer, commit plumbing.Hash) (plumbing.Hash, error) {
	raw, err := RawCommit(s, commit)
	if err != nil {
		return plumbing.ZeroHash, gittree.Missing("commit", commit, err)
	}
	return plumbing.ComputeHash(plumbing.CommitObject, signature.Payload(raw)), nil
}

func RawCommit(s storer.EncodedObjectStorer, commit plumbing.Hash) (raw []byte, err error) {
	o, err := s.EncodedObject(plumbing.CommitObject, commit)
	if err != nil {
		return nil, err
	}
	return ContentOf(o)
}

func ContentOf(o plumbing.EncodedObject) (raw []byte, err error) {
	r, err := o.Reader()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return io.ReadAll(r)
}
