package refwatch

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// requests are those of a watcher.
type requests chan types.NamespacedName

func (r requests) RequestSync(ctx context.Context, sources ...types.NamespacedName) {
	for _, name := range sources {
		select {
		case r <- name:
		case <-ctx.Done():
			return
		}
	}
}

func requestsOf(w *Watcher) requests {
	r, _ := w.requester.(requests) // startWatcher has given it
	return r
}

func startWatcher(t *testing.T) *Watcher {
	t.Helper()
	w, err := New(make(requests, 64))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- w.Start(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return w
}

var webSource = types.NamespacedName{Namespace: "shop", Name: "web"}

func watchRepo(w *Watcher, path string) {
	w.Watch(webSource, &url.URL{Scheme: "file", Path: path})
}

// requestCount counts the requests until there has been none for a while.
func requestCount(w *Watcher, quiet time.Duration) int {
	n := 0
	for {
		select {
		case <-requestsOf(w):
			n++
		case <-time.After(quiet):
			return n
		}
	}
}

const (
	quiet   = 400 * time.Millisecond
	patient = 30 * time.Second
)

// notices waits for a request, and for the end of more.
func notices(t *testing.T, w *Watcher) {
	t.Helper()
	select {
	case <-requestsOf(w):
		requestCount(w, quiet)
	case <-time.After(patient):
		t.Error("the push was not noticed")
	}
}

func TestWatchNoticesPushes(t *testing.T) {
	repo := gittest.NewRepo(t)
	repo.CommitAndPush(map[string]string{"a": "1"})
	w := startWatcher(t)
	watchRepo(w, repo.Bare)
	if n := requestCount(w, quiet); n != 0 {
		t.Errorf("requested %d times of nothing", n)
	}
	for name, push := range map[string]func(){
		"a commit":               func() { repo.CommitAndPush(map[string]string{"a": "2"}) },
		"a branch with a slash":  func() { repo.Git("push", "-q", "origin", "HEAD:refs/heads/release/v1/hot") },
		"again to that branch":   func() { repo.Commit(nil); repo.Git("push", "-q", "origin", "HEAD:refs/heads/release/v1/hot") },
		"refs packed, then more": func() { gittest.Git(t, repo.Bare, "pack-refs", "--all"); repo.CommitAndPush(nil) },
		"a branch deleted":       func() { repo.Git("push", "-q", "origin", ":refs/heads/release/v1/hot") },
		"a force-push":           func() { repo.Commit(nil); repo.Push("--force") },
	} {
		t.Run(name, func(t *testing.T) {
			requestCount(w, quiet)
			push()
			notices(t, w)
		})
	}
	w.Forget(webSource)
	requestCount(w, quiet) // of the last push
	repo.CommitAndPush(nil)
	if n := requestCount(w, quiet); n != 0 {
		t.Errorf("requested %d times after it was forgotten", n)
	}
}

func TestWatchTellsTheLast(t *testing.T) {
	repo := gittest.NewRepo(t)
	repo.CommitAndPush(nil)
	w := startWatcher(t)
	watchRepo(w, repo.Bare)
	requestCount(w, quiet)
	tip := ""
	seen := make(chan string, 100)
	var looking sync.WaitGroup
	looking.Go(func() {
		for {
			select {
			case <-requestsOf(w):
				// Without t: the last request may come when the test is over.
				out, err := exec.Command("git", "-C", repo.Bare, "rev-parse", "main").Output()
				if err == nil {
					seen <- strings.TrimSpace(string(out))
				}
			case <-t.Context().Done():
				return
			}
		}
	})
	t.Cleanup(looking.Wait)
	for range 10 {
		tip = repo.CommitAndPush(nil)
	}
	for last := ""; last != tip; {
		select {
		case last = <-seen:
		case <-time.After(patient):
			t.Fatalf("the last look saw %s, want %s", last, tip)
		}
	}
}

// All that is written before the repository is quiet brings one request.
func TestWatchTellsFew(t *testing.T) {
	repo := gittest.NewRepo(t)
	repo.CommitAndPush(nil)
	w, err := New(make(requests, 64))
	if err != nil {
		t.Fatal(err)
	}
	defer w.files.Close()
	watchRepo(w, repo.Bare)
	for range 100 {
		w.mark(fsnotify.Event{Name: filepath.Join(repo.Bare, "refs", "heads", "main"), Op: fsnotify.Create})
	}
	w.repos[repo.Bare].latest = time.Now().Add(-settle)
	w.report(t.Context())
	w.report(t.Context())
	if n := len(requestsOf(w)); n != 1 {
		t.Errorf("requested %d times", n)
	}
}

func TestWatchNoticesARepositoryThatComesLater(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "team", "repos", "shop.git")
	w := startWatcher(t)
	watchRepo(w, path)
	if err := os.WriteFile(filepath.Join(dir, "noise"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if n := requestCount(w, quiet); n != 0 {
		t.Errorf("requested %d times of noise", n)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	repo := gittest.NewRepoAt(t, path)
	repo.CommitAndPush(map[string]string{"a": "1"})
	notices(t, w)
	repo.CommitAndPush(map[string]string{"a": "2"})
	notices(t, w)
}
