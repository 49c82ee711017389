package refwatch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
)

// settle is how long a repository must be quiet before a sync: a push writes
// several files. The sync comes after the last of them, or it could miss the
// last push, and at the latest after settleAtMost.
const (
	settle       = 50 * time.Millisecond
	settleAtMost = 500 * time.Millisecond
)

// Requester is what a watcher asks for syncs.
type Requester interface {
	// RequestSync asks for a sync of sources at once. It returns early when ctx ends.
	RequestSync(ctx context.Context, sources ...types.NamespacedName)
}

// Watcher notices pushes to local repositories. A push that it misses is found at the
// interval of the source.
type Watcher struct {
	files     *fsnotify.Watcher
	requester Requester

	mu    sync.Mutex
	repos map[string]*repository // by path
	of    map[types.NamespacedName]string
}

// repository is one local repository and the sources that follow it.
type repository struct {
	path    string
	sources map[types.NamespacedName]bool
	dirs    map[string]bool // that are watched for it
	dirty   time.Time       // first event since the last request; zero: none
	latest  time.Time
}

// New returns a watcher that watches nothing yet.
func New(requester Requester) (*Watcher, error) {
	files, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watching local repositories: %w", err)
	}
	return &Watcher{
		files: files, requester: requester,
		repos: map[string]*repository{}, of: map[types.NamespacedName]string{},
	}, nil
}

// Watch follows the repository of a source, if it is a local one.
func (w *Watcher) Watch(name types.NamespacedName, u *url.URL) {
	w.mu.Lock()
	defer w.mu.Unlock()
	path := ""
	if u.Scheme == "file" {
		path = filepath.Clean(u.Path)
	}
	if w.of[name] != path {
		w.drop(name)
	}
	if path == "" {
		return
	}
	repo, ok := w.repos[path]
	if !ok {
		repo = &repository{path: path, sources: map[types.NamespacedName]bool{}, dirs: map[string]bool{}}
		w.repos[path] = repo
	}
	repo.sources[name], w.of[name] = true, path
	w.cover(repo)
}

// Forget ends the watch for a source.
func (w *Watcher) Forget(name types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(name)
}

func (w *Watcher) drop(name types.NamespacedName) {
	repo := w.repos[w.of[name]]
	delete(w.of, name)
	if repo == nil {
		return
	}
	if delete(repo.sources, name); len(repo.sources) > 0 {
		return
	}
	delete(w.repos, repo.path)
	for dir := range repo.dirs {
		if !w.used(dir) {
			_ = w.files.Remove(dir) // it may be gone already
		}
	}
}

func (w *Watcher) used(dir string) bool {
	for _, r := range w.repos {
		if r.dirs[dir] {
			return true
		}
	}
	return false
}

// cover watches the folders in which a push shows. They are the repository's own, for
// HEAD and packed-refs, and refs/heads and refs/tags with all below them, for names with
// slashes. It watches folders and not files, since git replaces files by renaming. If
// there is no repository yet, it watches the nearest folder that is there for its coming.
func (w *Watcher) cover(repo *repository) {
	want := map[string]bool{}
	dir := gitDir(repo.path)
	heads := filepath.Join(dir, "refs", "heads")
	if isDir(heads) {
		want[dir] = true
		for _, refs := range []string{heads, filepath.Join(dir, "refs", "tags")} {
			_ = filepath.WalkDir(refs, func(p string, e fs.DirEntry, err error) error { // what went meanwhile needs no watch
				if err == nil && e.IsDir() {
					want[p] = true
				}
				return nil
			})
		}
	} else {
		for dir = repo.path; !isDir(dir) && dir != filepath.Dir(dir); {
			dir = filepath.Dir(dir)
		}
		want[dir] = true
		for _, sub := range []string{".git", "refs"} { // half made
			if p := filepath.Join(dir, sub); dir == repo.path && isDir(p) {
				want[p] = true
			}
		}
	}
	for dir := range repo.dirs {
		if delete(repo.dirs, dir); !want[dir] && !w.used(dir) {
			_ = w.files.Remove(dir) // it may be gone already
		}
	}
	for dir := range want {
		// Again even where it is watched: the folder may be another one by now.
		if err := w.files.Add(dir); err == nil {
			repo.dirs[dir] = true
		}
	}
}

// gitDir is the folder with the refs: the repository itself where it is bare.
func gitDir(path string) string {
	if d := filepath.Join(path, ".git"); isDir(d) {
		return d
	}
	return path
}

func isDir(p string) bool {
	i, err := os.Stat(p)
	return err == nil && i.IsDir()
}

// Start runs until ctx ends.
func (w *Watcher) Start(ctx context.Context) error {
	defer w.files.Close()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-w.files.Events:
			if !ok {
				return errors.New("the watch on local repositories has ended")
			}
			w.mark(e)
		case err := <-w.files.Errors:
			// An overflow: anything may have changed.
			logr.FromContextOrDiscard(ctx).Info("Fetching all local repositories", "because", err.Error())
			w.markAll()
		case <-timer.C:
		}
		timer.Reset(w.report(ctx))
	}
}

// mark marks the repositories that an event is about.
func (w *Watcher) mark(e fsnotify.Event) {
	if strings.HasSuffix(e.Name, ".lock") || e.Op == fsnotify.Chmod {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	dir := filepath.Dir(e.Name)
	for _, repo := range w.repos {
		if repo.dirs[dir] && repo.concerns(e.Name) || repo.dirs[e.Name] {
			repo.mark()
		}
	}
}

// concerns reports whether a change of a file may be a push. In the
// repository's own folder much else is written.
func (repo *repository) concerns(file string) bool {
	dir := gitDir(repo.path)
	refs := filepath.Join(dir, "refs")
	switch {
	case strings.HasPrefix(file, filepath.Join(refs, "heads")), strings.HasPrefix(file, filepath.Join(refs, "tags")):
		return true
	case filepath.Dir(file) == dir:
		base := filepath.Base(file)
		return base == "packed-refs" || base == "HEAD" || base == "refs"
	default:
		// On the way to a repository that is not there yet, or was not.
		return strings.HasPrefix(repo.path+string(filepath.Separator), file+string(filepath.Separator)) || filepath.Dir(file) == repo.path
	}
}

func (repo *repository) mark() {
	repo.latest = time.Now()
	if repo.dirty.IsZero() {
		repo.dirty = repo.latest
	}
}

func (w *Watcher) markAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, repo := range w.repos {
		repo.mark()
	}
}

// report asks for a sync of the sources of repositories that have settled, and returns
// the time after which it is to be called again.
func (w *Watcher) report(ctx context.Context) time.Duration {
	next := time.Hour
	var sources []types.NamespacedName
	w.mu.Lock()
	now := time.Now()
	for _, repo := range w.repos {
		if repo.dirty.IsZero() {
			continue
		}
		if due := min(repo.latest.Add(settle).Sub(now), repo.dirty.Add(settleAtMost).Sub(now)); due > 0 {
			next = min(next, due)
			continue
		}
		repo.dirty = time.Time{}
		w.cover(repo) // before the sync: what comes after it is seen
		for name := range repo.sources {
			sources = append(sources, name)
		}
	}
	w.mu.Unlock()
	w.requester.RequestSync(ctx, sources...)
	return next
}
