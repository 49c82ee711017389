package repository

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

const (
	// objectCache is the size of a snapshot's cache; go-git's default is 96
	// MiB per repository (G9).
	objectCache = 12 * cache.MiByte
	// maxPacks is how many packs a clone may have. Each fetch adds one, go-git
	// never collects them, and to clone again is faster than to repack (G8).
	maxPacks = 50
)

// Cache are the mirrors in a folder, one per URL and Secret, shared by all
// GitSources that have both in common.
type Cache struct {
	dir string
	// Limits are those of each repository.
	Limits gittree.Limits

	mu sync.Mutex
	by map[string]*Mirror
	// users are the mirrors that sources use, by source.
	users map[types.NamespacedName]string
}

// NewCache returns the mirrors in a folder, with the default limits.
func NewCache(dir string) *Cache {
	return &Cache{dir: dir, Limits: gittree.DefaultLimits(), by: map[string]*Mirror{}, users: map[types.NamespacedName]string{}}
}

// hashedNameSize is how many bytes of a hash name a mirror.
const hashedNameSize = 16

// hashedName is the name of a repository's mirror. The Secret is part of it, so that no
// source reads through the credentials of another.
func hashedName(u *url.URL, secret string) string {
	sum := sha256.Sum256([]byte(u.String() + "\x00" + secret))
	return hex.EncodeToString(sum[:hashedNameSize])
}

// MirrorName is the name of the mirror of a remote.
func MirrorName(r gitserver.Remote) string {
	if r.Proxy == "" {
		return hashedName(r.URL, r.Secret)
	}
	return hashedName(r.URL, r.Secret+"\x00"+r.Proxy) // what a proxy leads to is for those who may use it
}

// Of returns the mirror of a repository.
func (ms *Cache) Of(r gitserver.Remote) *Mirror {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	return ms.named(MirrorName(r))
}

func (ms *Cache) named(name string) *Mirror {
	m, ok := ms.by[name]
	if !ok {
		m = &Mirror{
			dir: filepath.Join(ms.dir, name), limits: ms.Limits, owner: make(chan struct{}, 1), refused: map[string]rejectedTip{},
			order: gitobject.Precedence{},
		}
		ms.by[name] = m
	}
	return m
}

// Mirror is a bare repository on disk with the branches that GitSources
// follow, whole. One at a time fetches into it (G7); readers have a snapshot.
type Mirror struct {
	dir    string
	limits gittree.Limits
	owner  chan struct{} // holds a value while one goroutine has the disk

	// All below is the owner's.
	current    *clone
	generation int
	seen       advertised
	refused    map[string]rejectedTip // by branch, or reference of a tag
	order      gitobject.Precedence   // of pinned commits, and of tips that go back
	pinned     map[string]bool        // tags that were pinned
}

// rejectedTip is a tip that is not worth bringing again: it is too large, or the
// server does not have all of it.
type rejectedTip struct {
	tip   plumbing.Hash
	until time.Time // zero: for ever
	err   error
}

// brokenFor is how long a tip that the server does not have all of is left alone. The
// server may be repaired by then, and a clone costs both sides.
const brokenFor = 10 * time.Minute

// advertised is what the server said last.
type advertised struct {
	asked    time.Time // before it was asked
	identity string    // of the credentials it was asked with
	tips     map[string]plumbing.Hash
	tags     map[string]Tag
}

// clone is one generation of a mirror's disk. It is removed when a newer one
// has taken its place and the last reader is done.
type clone struct {
	dir string

	limits gittree.Limits

	mu      sync.Mutex
	readers int
	retired bool
	reading *reading
}

func newClone(dir string, limits gittree.Limits) *clone {
	return &clone{dir: dir, limits: limits, reading: &reading{dir: dir}}
}

// Snapshot is a commit and all it needs, for one reader. It does not change.
type Snapshot struct {
	storer.EncodedObjectStorer
	// Commit is what is to be applied: the tip, unless another one is pinned.
	Commit plumbing.Hash
	// Tip is that of the branch, which has the approvals.
	Tip plumbing.Hash
	// Pinned is set where Commit is that of a tag or of the spec itself, not of the branch.
	Pinned bool
	// Tag is the one that is pinned; its zero value: none.
	Tag    Tag
	clone  *clone
	limits gittree.Limits
	// Asked is set where the server was asked for this snapshot, and Fetched where its
	// objects were fetched just now.
	Asked, Fetched bool

	reading *reading
	folders *gittree.Folders // nil: it is not of a mirror
}

// Limits are those of the repository.
func (s *Snapshot) Limits() gittree.Limits { return s.limits }

// Folders are the large ones that readers of the clone have read. Each source of a monorepo
// would else decode the folder of all paths several times.
func (s *Snapshot) Folders() *gittree.Folders { return s.folders }

// Fetch returns the branch as it is now on the server.
func (m *Mirror) Fetch(ctx context.Context, r gitserver.Remote, branch string) (*Snapshot, error) {
	return m.fetchSince(ctx, r, branch, time.Now())
}

// fetchSince returns the branch as it has been on the server at some time since. An
// answer to a question that was asked later is as good as an own one. So a thousand
// sources that are synced at the same time ask little more than once.
func (m *Mirror) fetchSince(ctx context.Context, r gitserver.Remote, branch string, since time.Time) (*Snapshot, error) {
	free, err := m.take(ctx, r)
	if err != nil {
		return nil, err
	}
	defer free()
	return m.branchSince(ctx, r, branch, since)
}

// take takes the disk. The function that it returns frees it again.
func (m *Mirror) take(ctx context.Context, r gitserver.Remote) (free func(), err error) {
	select {
	case m.owner <- struct{}{}:
	case <-ctx.Done():
		return nil, r.Problem(ctx.Err())
	}
	free = func() { <-m.owner }
	if err := m.openCurrent(); err != nil {
		free()
		return nil, err
	}
	return free, nil
}

// branchSince is lookSince for who has the disk.
func (m *Mirror) branchSince(ctx context.Context, r gitserver.Remote, branch string, since time.Time) (*Snapshot, error) {
	if m.seen.asked.After(since) && m.seen.identity == r.Access.Identity {
		if tip, ok := m.seen.tips[branch]; ok && m.current.tip(branch) == tip {
			return m.current.snapshot(tip), nil
		}
	}
	for tries := 1; ; tries++ {
		s, err := m.ask(ctx, r, branch)
		if errors.Is(err, gitserver.ErrHungUp) && tries < maxHungUp {
			continue
		}
		if err == nil {
			s.Asked = true
		}
		return s, err
	}
}

// maxHungUp is how often a server may be too fast in one look.
const maxHungUp = 3

// timesBack is how often a server has to answer with an ancestor of the branch's tip, backPeriod
// apart, before the branch goes back. One of several servers behind an address may lag behind.
const (
	timesBack  = 3
	backPeriod = 2 * time.Second
)

// ask asks the server for the branch's tip and brings it, if it is new.
func (m *Mirror) ask(ctx context.Context, r gitserver.Remote, branch string) (*Snapshot, error) {
	for times := 1; ; times++ {
		asked := time.Now()
		s, err := gitserver.Connect(ctx, r)
		if err != nil {
			return nil, err
		}
		m.seen = advertised{asked: asked, identity: r.Access.Identity, tips: gitserver.Branches(s), tags: tags(s)}
		tip, err := s.Tip(branch)
		if err != nil {
			s.Close()
			return nil, err
		}
		if times == timesBack || !m.asksAgain(ctx, r, branch, tip) {
			defer s.Close()
			return m.bringTip(ctx, r, s, branch, tip)
		}
		s.Close()
		select {
		case <-time.After(backPeriod):
		case <-ctx.Done():
			return nil, r.Problem(ctx.Err())
		}
	}
}

// asksAgain reports whether a tip goes back, and there is time to ask for it again.
func (m *Mirror) asksAgain(ctx context.Context, r gitserver.Remote, branch string, tip plumbing.Hash) bool {
	if until, ok := ctx.Deadline(); r.URL.Scheme == "file" || ok && time.Until(until) < 2*backPeriod {
		return false
	}
	store, last := m.current.store(), m.current.tip(branch)
	if tip == last || store.HasEncodedObject(tip) != nil {
		return false
	}
	back, err := m.order.PrecedesItself(ctx, store, tip, last)
	return err == nil && back
}

// bringTip brings a branch's tip that a server has answered with, if it is new.
func (m *Mirror) bringTip(ctx context.Context, r gitserver.Remote, s *gitserver.Session, branch string, tip plumbing.Hash,
) (*Snapshot, error) {
	if m.current.tip(branch) == tip && m.current.store().HasEncodedObject(tip) == nil {
		return m.current.snapshot(tip), nil
	}
	if f, ok := m.refused[branch]; ok && f.tip == tip && (f.until.IsZero() || time.Now().Before(f.until)) {
		return nil, f.err
	}
	defer m.measure()
	if n := m.current.packs(); n < maxPacks {
		err := m.current.fetch(ctx, s, branch, tip)
		if err == nil {
			return m.current.snapshot(tip).justFetched(), nil
		}
		// Damaged, or full of what a force-push has left behind.
		if full := n > 0 && errors.Is(err, gitserver.ErrNoRoom); !full && !IsDamaged(err) {
			return nil, m.refuse(r, branch, tip, err)
		}
	}
	return m.reclone(ctx, r, branch)
}

// reclone brings a branch into a new clone, which takes the place of the
// present one when all is there.
func (m *Mirror) reclone(ctx context.Context, r gitserver.Remote, branch string) (*Snapshot, error) {
	next, err := m.begin()
	if err != nil {
		return nil, err
	}
	s, err := gitserver.Connect(ctx, r) // one session does one fetch
	if err != nil {
		_ = os.RemoveAll(next.dir) // it is tried again at the next start
		return nil, err
	}
	defer s.Close()
	tip, err := s.Tip(branch)
	if err == nil {
		err = next.fetch(ctx, s, branch, tip)
	}
	if err != nil {
		_ = os.RemoveAll(next.dir) // it is tried again at the next start
		return nil, m.refuse(r, branch, tip, err)
	}
	m.replace(next)
	return next.snapshot(tip).justFetched(), nil
}

// refuse remembers a tip that it is no use to fetch again, and says why.
func (m *Mirror) refuse(r gitserver.Remote, branch string, tip plumbing.Hash, err error) error {
	f := rejectedTip{tip: tip, err: err}
	switch {
	case errors.Is(err, gitserver.ErrNoRoom):
		f.err = gittree.Exceeded(r.String(), "the repository has more than "+gittree.FormatSize(m.limits.RepositorySize), "--max-repository-size")
	case gittree.IsExceeded(err), isNoCommit(err):
	case errors.Is(err, gitserver.ErrNotIndexed):
		f.until = time.Now().Add(brokenFor)
	case IsDamaged(err):
		f.err = &plan.Problem{
			Reason: v1alpha1.ReasonFetchFailed, Where: r.String(), Err: fmt.Errorf("what the server sends is not complete: %w", err),
			Hint: "run git fsck on the server",
		}
		f.until = time.Now().Add(brokenFor)
	default:
		return err
	}
	m.refused[branch] = f
	return f.err
}

// ErrNoCommit says that a ref names something else.
var ErrNoCommit = errors.New("no commit")

// FetchRef returns a snapshot at a ref that is no branch; at the zero hash where
// the server does not have it. The error is [ErrNoCommit] where it names something else.
func (m *Mirror) FetchRef(ctx context.Context, r gitserver.Remote, ref string) (*Snapshot, error) {
	free, err := m.take(ctx, r)
	if err != nil {
		return nil, err
	}
	defer free()
	s, err := gitserver.Connect(ctx, r)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	tip := s.Refs.References[ref]
	if !tip.IsZero() {
		err := m.current.fetch(ctx, s, ref, tip)
		if o, no := m.current.store().EncodedObject(plumbing.AnyObject, tip); no == nil && o.Type() != plumbing.CommitObject {
			err = fmt.Errorf("it names %s %s, and %w", o.Type(), tip, ErrNoCommit)
		}
		if err != nil {
			return nil, err
		}
	}
	return m.current.snapshot(tip), nil
}

// Repair throws the disk away; the next sync clones again. A reader calls it when it
// met an object that is not there.
func (m *Mirror) Repair(ctx context.Context, met *Snapshot) error {
	select {
	case m.owner <- struct{}{}:
		defer func() { <-m.owner }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if m.current != met.clone {
		return nil // another reader was faster
	}
	return m.startEmpty()
}

// openCurrent finds the newest generation on disk after a start.
func (m *Mirror) openCurrent() error {
	if m.current != nil {
		return nil
	}
	entries, err := os.ReadDir(m.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return gitserver.StorageProblem(err)
	}
	var generations []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			generations = append(generations, n)
		}
	}
	slices.Sort(generations)
	if len(generations) == 0 {
		return m.startEmpty()
	}
	for _, old := range generations[:len(generations)-1] {
		_ = os.RemoveAll(m.path(old)) // it is tried again at the next start
	}
	m.generation = generations[len(generations)-1]
	m.current = m.clone(m.generation)
	m.current.sweep()
	m.measure()
	return nil
}

func (m *Mirror) path(generation int) string { return filepath.Join(m.dir, strconv.Itoa(generation)) }

func (m *Mirror) clone(generation int) *clone {
	return newClone(m.path(generation), m.limits)
}

// startEmpty begins an empty clone in place of the present one.
func (m *Mirror) startEmpty() error {
	next, err := m.begin()
	if err == nil {
		m.replace(next)
	}
	return err
}

// begin makes an empty clone beside the present one.
func (m *Mirror) begin() (*clone, error) {
	m.generation++
	next := m.clone(m.generation)
	if err := errors.Join(os.RemoveAll(next.dir), os.MkdirAll(next.dir, 0o700)); err != nil {
		return nil, gitserver.StorageProblem(err)
	}
	if err := next.store().Init(); err != nil {
		return nil, gitserver.StorageProblem(err)
	}
	return next, nil
}

func (m *Mirror) replace(next *clone) {
	if m.current != nil {
		m.current.retire()
	}
	m.current = next
}

// store returns a store of its own, which also writes.
func (c *clone) store() *filesystem.Storage {
	return filesystem.NewStorage(osfs.New(c.dir), cache.NewObjectLRU(objectCache))
}

func trackingName(branch string) plumbing.ReferenceName {
	return plumbing.NewRemoteReferenceName("origin", branch)
}

// tip returns the branch as it was fetched last.
func (c *clone) tip(branch string) plumbing.Hash {
	if tip, ok := c.looseTip(branch); ok {
		return tip
	}
	ref, err := c.store().Reference(trackingName(branch))
	if err != nil {
		return plumbing.ZeroHash
	}
	return ref.Hash()
}

// looseTip reads a branch's tip from its file, without the rest of the repository. After a
// push, each source of the repository asks for it. It returns false if there is no such file.
func (c *clone) looseTip(branch string) (plumbing.Hash, bool) {
	name := filepath.FromSlash(trackingName(branch).String())
	if !filepath.IsLocal(name) {
		return plumbing.ZeroHash, false
	}
	text, err := os.ReadFile(filepath.Join(c.dir, name))
	if err != nil {
		return plumbing.ZeroHash, false
	}
	hash := strings.TrimSpace(string(text))
	return plumbing.NewHash(hash), plumbing.IsHash(hash)
}

// fetch brings a branch's tip, and names it when all of it is there: the
// refspec is in effect +refs/heads/B:refs/remotes/origin/B (G2).
func (c *clone) fetch(ctx context.Context, s *gitserver.Session, branch string, tip plumbing.Hash) error {
	store := c.store()
	if store.HasEncodedObject(tip) != nil {
		if err := c.bring(ctx, s, tip); err != nil {
			return err
		}
	}
	if err := c.verifyComplete(tip, c.tip(branch)); err != nil {
		return err
	}
	if err := store.SetReference(plumbing.NewHashReference(trackingName(branch), tip)); err != nil {
		return gitserver.StorageProblem(err)
	}
	return nil
}

// bring brings objects and all that they need.
func (c *clone) bring(ctx context.Context, s *gitserver.Session, wants ...plumbing.Hash) error {
	defer c.sweep()
	store := c.store()
	err := s.Fetch(ctx, store, wants, gitserver.Haves(store, c.tips(store)), c.limits, c.limits.RepositorySize-diskSize(c.dir))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading = &reading{dir: c.dir} // the pack may be there though the exchange has failed at its end
	return err
}

// IsDamaged reports whether an error is one that cloning again may repair.
func IsDamaged(err error) bool {
	return errors.Is(err, gittree.ErrDamaged) || errors.Is(err, plumbing.ErrObjectNotFound) ||
		errors.Is(err, transport.ErrEmptyUploadPackRequest)
}

// verifyComplete checks that the tree of a commit is all there (G1, G3); that of an
// older one was when it was fetched.
func (c *clone) verifyComplete(commit, older plumbing.Hash) error {
	store := c.store()
	t, err := gittree.Open(store, commit)
	if err == nil {
		known := plumbing.ZeroHash
		if was, err := object.GetCommit(store, older); err == nil {
			known = was.TreeHash
		}
		err = t.Complete(known)
	}
	if err != nil && !gittree.IsExceeded(err) {
		err = fmt.Errorf("%w: %w", gittree.ErrDamaged, err)
	}
	return err
}

func (c *clone) tips(store *filesystem.Storage) []plumbing.Hash {
	refs, err := store.IterReferences()
	if err != nil {
		return nil // nothing is known to be there
	}
	var tips []plumbing.Hash
	_ = refs.ForEach(func(r *plumbing.Reference) error { // the function never fails
		if r.Type() == plumbing.HashReference {
			tips = append(tips, r.Hash())
		}
		return nil
	})
	return tips
}

func (c *clone) packs() int {
	packs, err := filepath.Glob(filepath.Join(c.dir, "objects", "pack", "*.pack"))
	if err != nil { // the pattern is valid, unless the folder's name has a bracket
		return 0
	}
	return len(packs)
}

func (c *clone) snapshot(commit plumbing.Hash) *Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readers++
	objects, folders := c.reading.open()
	return &Snapshot{
		EncodedObjectStorer: objects, Commit: commit, Tip: commit, clone: c, limits: c.limits, reading: c.reading, folders: folders,
	}
}

// At is the same reader's view of an older commit, with its approvals. If a commit or tag
// is pinned, the approvals stay those of the tip.
func (s *Snapshot) At(commit plumbing.Hash) *Snapshot {
	older := *s
	if !older.Pinned {
		older.Tip = commit
	}
	older.Commit, older.Tag = commit, Tag{}
	return &older
}

func (s *Snapshot) justFetched() *Snapshot {
	s.Fetched = true
	return s
}

// Close ends a reader's use of a snapshot.
func (s *Snapshot) Close() {
	s.reading.close()
	c := s.clone
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.readers--; c.readers == 0 && c.retired {
		_ = os.RemoveAll(c.dir) // it is tried again at the next start
	}
}

// SharesDisk reports whether two snapshots are of the same clone: objects that were fetched
// for the one are there for the other.
func (s *Snapshot) SharesDisk(other *Snapshot) bool { return s.clone == other.clone }

// DiskSize returns the bytes on disk of the clone.
func (s *Snapshot) DiskSize() int64 { return diskSize(s.clone.dir) }

func (c *clone) retire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.retired = true; c.readers == 0 {
		_ = os.RemoveAll(c.dir) // it is tried again at the next start
	}
}

// ForcePushed reports whether the tip no longer has an older commit in its
// history. An older commit that is not there at all counts as pushed away.
func (s *Snapshot) ForcePushed(older plumbing.Hash) (bool, error) {
	if older.IsZero() || older == s.Commit {
		return false, nil
	}
	tip, err := object.GetCommit(s, s.Commit)
	if err != nil {
		return false, fmt.Errorf("%w: %w", gittree.ErrDamaged, err)
	}
	was, err := object.GetCommit(s, older)
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("%w: %w", gittree.ErrDamaged, err)
	}
	ancestor, err := was.IsAncestor(tip)
	if err != nil {
		return false, fmt.Errorf("%w: %w", gittree.ErrDamaged, err)
	}
	return !ancestor, nil
}
