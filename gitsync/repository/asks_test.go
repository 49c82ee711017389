package repository

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// askedFor keeps what a Git server is asked for: the commits of each fetch.
type askedFor struct {
	mu      sync.Mutex
	fetches [][]string
}

func (a *askedFor) wrap(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/git-upload-pack") {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			var wants []string
			for line := range strings.Lines(string(body)) {
				if _, rest, is := strings.Cut(line, "want "); is {
					wants = append(wants, strings.Fields(rest)[0])
				}
			}
			a.mu.Lock()
			a.fetches = append(a.fetches, wants)
			a.mu.Unlock()
		}
		h.ServeHTTP(w, r)
	})
}

// all returns the fetches so far, and forgets them.
func (a *askedFor) all() [][]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.fetches
	a.fetches = nil
	return all
}

// A mirror fetches the branch that is followed. It fetches no other branch, no tag, no note
// and no pull request, at first and later.
func TestFetch_BranchAlone(t *testing.T) {
	repo := gittest.NewRepo(t)
	first := repo.CommitAndPush(map[string]string{"a": "1"})
	others := []string{"refs/heads/next", "refs/tags/v1", "refs/notes/tranche", "refs/pull/1/head", "refs/heads/main2"}
	var elsewhere []string
	change := func(n int) {
		for _, ref := range others {
			repo.Git("checkout", "-q", "--detach", "main")
			elsewhere = append(elsewhere, repo.Commit(map[string]string{"b": fmt.Sprint(ref, n)}))
			repo.Git("push", "-q", "--force", "origin", "HEAD:"+ref)
		}
		repo.Git("checkout", "-q", "main")
	}
	change(1)
	var asked askedFor
	server := gittest.Serve(t, filepath.Dir(repo.Bare), gittest.ServeOptions{Wrap: asked.wrap})
	ms, r := NewCache(t.TempDir()), remoteFor(t, server.URL+"/repo.git", nil)
	mustLook(t, ms, r, "main")
	if diff := cmp.Diff([][]string{{first}}, asked.all()); diff != "" {
		t.Errorf("the first time it asks for (-want +got)\n%s", diff)
	}
	change(2)
	mustLook(t, ms, r, "main")
	if all := asked.all(); len(all) > 0 {
		t.Errorf("the branch is as it was, and it asks for %v", all)
	}
	second := repo.CommitAndPush(map[string]string{"a": "2"})
	s := mustLook(t, ms, r, "main")
	if diff := cmp.Diff([][]string{{second}}, asked.all()); diff != "" {
		t.Errorf("after a push it asks for (-want +got)\n%s", diff)
	}
	isGone := func(commit string) bool { return s.HasEncodedObject(plumbing.NewHash(commit)) != nil }
	if there := slices.DeleteFunc(elsewhere, isGone); len(there) > 0 {
		t.Errorf("it has commits of other references: %v", there)
	}
}
