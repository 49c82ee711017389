package repository

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

const (
	// BaseShare is the part of the size of a repository that a base may have. All of them
	// together have as much as one repository.
	BaseShare = 8
	// BasesFor bounds how long one sync waits for the servers of all bases of all its
	// renderings. Those of older commits and of other sources' folders are included.
	BasesFor = time.Minute
)

// FetchBase brings a remote base. The snapshot is to be closed. nil: remote bases are
// refused.
type FetchBase func(manifest.RemoteBase) (*Snapshot, error)

// Bases are remote bases on disk: of each a single commit, without its history. They are
// fetched here and not where folders are rendered: a renderer reaches no network. No
// credentials go to a server of a base, so all sources may share them.
type Bases struct {
	dir    string
	limits gittree.Limits

	mu   sync.Mutex
	made int
	by   map[manifest.RemoteBase]*base
}

// of returns a base that is the caller's until free is called.
func (bs *Bases) of(ctx context.Context, name manifest.RemoteBase) (b *base, free func(), err error) {
	bs.mu.Lock()
	b, ok := bs.by[name]
	if !ok {
		b = &base{owner: make(chan struct{}, 1)}
		bs.by[name] = b
	}
	b.used = time.Now()
	bs.mu.Unlock()
	select {
	case b.owner <- struct{}{}:
		return b, func() { <-b.owner }, nil
	case <-ctx.Done():
		return nil, nil, BaseProblem(name, ctx.Err())
	}
}

// Fetch returns a base as it has been on its server at some time since.
func (bs *Bases) Fetch(ctx context.Context, name manifest.RemoteBase, since time.Time) (*Snapshot, error) {
	b, free, err := bs.of(ctx, name)
	if err != nil {
		return nil, err
	}
	defer free()
	if !b.asked.After(since) || b.err == nil && b.clone == nil {
		asked := time.Now()
		err := bs.ask(ctx, name, b)
		if err != nil && ctx.Err() != nil {
			return nil, err // of this caller, which may wait for less than another
		}
		b.asked, b.err = asked, err
		bs.makeRoom(b)
	}
	if b.err != nil {
		return nil, b.err
	}
	return b.clone.snapshot(b.commit), nil
}

// ask asks a server for a base, and brings it if it is another one than before.
func (bs *Bases) ask(ctx context.Context, name manifest.RemoteBase, b *base) error {
	u, err := gitserver.ParseURL(name.URL)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" {
		return &plan.Problem{
			Reason: v1alpha1.ReasonInvalidURL, Where: baseName(name),
			Err: errors.New("is not an https or http URL without credentials"),
		}
	}
	s, err := gitserver.Connect(ctx, gitserver.Remote{URL: u, Base: true})
	if err != nil {
		return BaseProblem(name, err)
	}
	defer s.Close()
	wants, commit, err := baseAt(s, name.Ref)
	if err != nil {
		return BaseProblem(name, err)
	}
	if b.clone != nil && b.commit == commit {
		if _, err := object.GetCommit(b.clone.store(), commit); err == nil {
			return nil
		}
	}
	next, err := bs.begin()
	if err != nil {
		return err
	}
	err = next.bring(ctx, s, wants...)
	if err == nil {
		if _, found := object.GetCommit(next.store(), commit); found != nil {
			err = &plan.Problem{
				Reason: v1alpha1.ReasonCommitNotFound, Err: fmt.Errorf("there is no commit %s", plan.ShortCommit(commit.String())),
				Hint: "name a branch or a tag, or a commit of a branch",
			}
		} else {
			err = next.verifyComplete(commit, plumbing.ZeroHash)
		}
	}
	if err != nil {
		_ = os.RemoveAll(next.dir) // it is emptied at the next start
		return BaseProblem(name, err)
	}
	if b.clone != nil {
		b.clone.retire()
	}
	b.clone, b.commit = next, commit
	return nil
}

// begin makes an empty clone.
func (bs *Bases) begin() (*clone, error) {
	bs.mu.Lock()
	bs.made++
	limits := bs.limits
	limits.RepositorySize /= BaseShare
	next := newClone(filepath.Join(bs.dir, strconv.Itoa(bs.made)), limits)
	bs.mu.Unlock()
	if err := os.MkdirAll(next.dir, 0o700); err != nil {
		return nil, gitserver.StorageProblem(err)
	}
	if err := next.store().Init(); err != nil {
		return nil, gitserver.StorageProblem(err)
	}
	return next, nil
}

// makeRoom counts a base, and removes those that have not been used for the longest where
// all of them take more than one repository may.
func (bs *Bases) makeRoom(b *base) {
	size := int64(0)
	if b.clone != nil {
		size = diskSize(b.clone.dir)
	}
	bs.mu.Lock()
	defer bs.mu.Unlock()
	b.size = size
	for {
		total := int64(0)
		var oldest manifest.RemoteBase
		var out *base
		for name, other := range bs.by {
			total += other.size
			if other != b && (out == nil || other.used.Before(out.used)) {
				oldest, out = name, other
			}
		}
		if out == nil || total <= bs.limits.RepositorySize && len(bs.by) <= keptBases {
			return
		}
		delete(bs.by, oldest)
		go out.drop()
	}
}

// Within returns a function that fetches bases as they have been at some time since. It
// takes no more time than left, and subtracts what it has used.
func (bs *Bases) Within(ctx context.Context, left *time.Duration, since time.Time) FetchBase {
	return func(b manifest.RemoteBase) (*Snapshot, error) {
		begun := time.Now()
		ctx, cancel := context.WithTimeout(ctx, *left)
		defer cancel()
		defer func() { *left -= time.Since(begun) }()
		return bs.Fetch(ctx, b, since)
	}
}

// NewBases returns the bases in a folder, which it empties.
func NewBases(dir string, l gittree.Limits) *Bases {
	_ = os.RemoveAll(dir) // what is left is never read
	return &Bases{dir: dir, limits: l.WithDefaults(), by: map[manifest.RemoteBase]*base{}}
}

// base is one remote base.
type base struct {
	owner chan struct{} // taken while its server is asked

	// All below is the owner's.
	asked  time.Time
	err    error
	commit plumbing.Hash
	clone  *clone

	// The lock of [Bases] guards these:
	used time.Time
	size int64
}

// drop removes a base from disk, once it is not being fetched.
func (b *base) drop() {
	b.owner <- struct{}{}
	defer func() { <-b.owner }()
	if b.clone != nil {
		b.clone.retire()
	}
	b.clone, b.asked, b.err = nil, time.Time{}, nil
}

// keptBases is how many bases are kept for the next rendering.
const keptBases = 512

// baseAt returns what to ask a server for to have a base, and its commit. Without a
// history, where the server lets it.
func baseAt(s *gitserver.Session, ref string) (wants []plumbing.Hash, commit plumbing.Hash, err error) {
	s.Depth = 1
	if ref == "" {
		if s.Refs.Head == nil {
			return nil, commit, &plan.Problem{
				Reason: v1alpha1.ReasonBranchNotFound, Err: errors.New("has no default branch"), Hint: "name a branch, as in ?ref=main",
			}
		}
		return []plumbing.Hash{*s.Refs.Head}, *s.Refs.Head, nil
	}
	names := []string{ref, "refs/tags/" + ref, "refs/heads/" + ref} // in git's order
	if plumbing.IsHash(ref) {
		names = nil // a branch of that name is not the commit
	}
	for _, name := range names {
		if h, ok := s.Refs.References[name]; ok {
			if peeled, ok := s.Refs.Peeled[name]; ok {
				return []plumbing.Hash{h}, peeled, nil
			}
			return []plumbing.Hash{h}, h, nil
		}
	}
	if !plumbing.IsHash(ref) {
		return nil, commit, &plan.Problem{
			Reason: v1alpha1.ReasonBranchNotFound, Err: fmt.Errorf("there is no branch and no tag %s", ref),
			Hint: "push it, or correct the base's ref",
		}
	}
	commit = plumbing.NewHash(ref)
	if s.MayWant(commit) {
		return []plumbing.Hash{commit}, commit, nil
	}
	s.Depth = 0
	for _, h := range gitserver.Branches(s) {
		wants = append(wants, h)
	}
	return wants, commit, nil
}

// baseName is a base as messages have it.
func baseName(b manifest.RemoteBase) string { return "remote base " + b.String() }

// BaseProblem puts an error of a base's server in words: of a GitSource's own
// server, others would be said.
func BaseProblem(name manifest.RemoteBase, err error) error {
	u, parseErr := gitserver.ParseURL(name.URL)
	if parseErr != nil {
		return parseErr
	}
	err = gitserver.Remote{URL: u, Base: true}.Problem(err)
	if errors.Is(err, gitserver.ErrNoRoom) {
		err = gittree.Exceeded("", "the repository takes more than a remote base may",
			"--max-repository-size, of which a remote base may have an eighth")
	}
	p, ok := errors.AsType[*plan.Problem](err)
	if !ok {
		return err
	}
	said := *p
	said.Where = baseName(name)
	if strings.Contains(said.Hint, "spec.url") || strings.Contains(said.Hint, "Secret") {
		said.Hint = "check the URL; no credentials are sent to the server of a remote base"
	}
	return &said
}
