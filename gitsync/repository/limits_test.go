package repository

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/gittree"
)

// A repository that is too large is refused, says so once per tip, and leaves
// the others alone; what was brought stays in force.
func TestRepositoryTooLarge(t *testing.T) {
	small, large := gittest.NewRepo(t), gittest.NewRepo(t)
	small.CommitAndPush(map[string]string{"a": "1"})
	first := large.CommitAndPush(map[string]string{"a": "1"})
	var fetched atomic.Int32
	server := gittest.Serve(t, filepath.Dir(large.Bare), gittest.ServeOptions{Wrap: func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/git-upload-pack") {
				fetched.Add(1)
			}
			h.ServeHTTP(w, r)
		})
	}})
	for _, tt := range []struct {
		reason string
		files  map[string]string
		says   string
	}{
		{"bytes", manyFiles(8, 100<<10), "has more than 512Ki; make it smaller, or raise the controller's --max-repository-size"},
		{
			"a file that is small in the pack and large in memory", map[string]string{"big": strings.Repeat("0", 1<<20)},
			"a file of 1Mi is in its history, and at most 128Ki are taken",
		},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			ms := NewCache(t.TempDir())
			ms.Limits = gittree.Limits{RepositorySize: 512 << 10}.WithDefaults()
			r := remoteFor(t, server.URL+"/repo.git", nil)
			large.Git("reset", "-q", "--hard", first)
			large.Push("--force")
			before := mustLook(t, ms, r, "main")
			large.CommitAndPush(tt.files)
			fetched.Store(0)
			for range 3 {
				_, err := lookAt(t, ms, r, "main")
				if err == nil || !gittree.IsExceeded(err) || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), server.URL) {
					t.Fatalf("got %v, want %q", err, tt.says)
				}
			}
			if n := fetched.Load(); n > 2 {
				t.Errorf("a tip that is too large was fetched %d times", n)
			}
			if content(t, before, "a") != "1" {
				t.Error("what was brought before is gone")
			}
			if left := diskSize(ms.Of(r).dir); left > ms.Limits.RepositorySize {
				t.Errorf("%d bytes are left on disk", left)
			}
			if content(t, mustLook(t, ms, remoteFor(t, small.URL(), nil), "main"), "a") != "1" {
				t.Error("another repository suffers")
			}
			large.Git("reset", "-q", "--hard", first)
			tip := large.Commit(map[string]string{"a": "2"})
			large.Push("--force")
			if s := mustLook(t, ms, r, "main"); s.Commit.String() != tip {
				t.Errorf("after the large file is gone: at %s", s.Commit)
			}
		})
	}
}

// manyFiles are files that do not get smaller.
func manyFiles(n, size int) map[string]string {
	files := map[string]string{}
	for i := range n {
		files[fmt.Sprintf("big/%d", i)] = string(gittest.PseudoRandom(i, size))
	}
	return files
}

// Objects that force-pushes have left behind do not count for ever.
func TestRepositoryFullOfRubbish(t *testing.T) {
	repo := gittest.NewRepo(t)
	first := repo.CommitAndPush(map[string]string{"a": "1"})
	ms, r := NewCache(t.TempDir()), remoteFor(t, repo.URL(), nil)
	ms.Limits = gittree.Limits{RepositorySize: 1 << 20}.WithDefaults()
	for i := range 8 {
		repo.Git("reset", "-q", "--hard", first)
		tip := repo.Commit(map[string]string{"a": fmt.Sprint(i) + gittest.Noise(240<<10)})
		repo.Push("--force")
		s := mustLook(t, ms, r, "main")
		if s.Commit.String() != tip {
			t.Fatalf("at %s", s.Commit)
		}
		if size := diskSize(s.clone.dir); size > ms.Limits.RepositorySize {
			t.Errorf("%d bytes on disk", size)
		}
	}
}

// Mirrors that no source uses any more leave the disk.
func TestUnusedMirrorsGo(t *testing.T) {
	a, b := gittest.NewRepo(t), gittest.NewRepo(t)
	a.CommitAndPush(map[string]string{"a": "1"})
	b.CommitAndPush(map[string]string{"b": "1"})
	ra, rb := remoteFor(t, a.URL(), nil), remoteFor(t, b.URL(), nil)
	dir := t.TempDir()
	ms := NewCache(dir)
	look := func(source string, r gitserver.Remote) *Snapshot {
		s, err := ms.Use(types.NamespacedName{Name: source}, r).Fetch(t.Context(), r, "main")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	there := func() (names []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			switch e.Name() {
			case hashedName(ra.URL, ""):
				names = append(names, "a")
			case hashedName(rb.URL, ""):
				names = append(names, "b")
			default:
				names = append(names, e.Name())
			}
		}
		slices.Sort(names)
		return names
	}
	step := func(reason string, want ...string) {
		t.Helper()
		if got := there(); strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s: on disk are %v, want %v", reason, got, want)
		}
	}
	look("one", ra).Close()
	look("two", ra).Close()
	look("three", rb).Close()
	step("three sources of two repositories", "a", "b")
	ms.Release(types.NamespacedName{Name: "one"})
	step("another source uses it", "a", "b")
	ms.Release(types.NamespacedName{Name: "two"})
	step("nobody uses it", "b")
	look("three", ra).Close()
	step("a source with another URL", "a")
	if s := look("three", ra); content(t, s, "a") != "1" {
		t.Error("a repository that comes back is cloned anew")
	}
	if err := os.MkdirAll(filepath.Join(dir, "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	look("four", rb).Close()
	again := NewCache(dir)
	if removed := again.Sweep(map[string]bool{hashedName(ra.URL, ""): true}); len(removed) != 1 {
		t.Errorf("removed %v", removed)
	}
	step("after a start, without the source of b", "a", "lost+found")
}
