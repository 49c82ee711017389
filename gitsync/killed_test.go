package gitsync_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// reaper is a Git server at whose k-th exchange the controller dies: when the
// server has done what was asked, and before the answer is there.
type reaper struct {
	mu     sync.Mutex
	armed  bool
	begun  bool
	dead   bool
	left   int
	killed chan struct{}
}

func (r *reaper) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.dead {
			panic(http.ErrAbortHandler)
		}
		// A write-back begins where the server is asked whether it takes a push,
		// and ends when what was pushed has been fetched.
		r.begun = r.armed && (r.begun || strings.Contains(req.URL.String(), "git-receive-pack"))
		if r.begun {
			r.left--
			r.armed = !strings.HasSuffix(req.URL.Path, "git-upload-pack")
		}
		if !r.begun || r.left != 0 {
			next.ServeHTTP(w, req)
			return
		}
		next.ServeHTTP(httptest.NewRecorder(), req)
		r.dead = true
		close(r.killed)
		panic(http.ErrAbortHandler)
	})
}

func (r *reaper) set(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// I6 for Git: whatever exchange with the server the controller dies in, there
// is one commit in the end.
func TestWriteBackKilled(t *testing.T) {
	for _, story := range []struct {
		name string
		tell func(s *shop)
		end  func(s *shop)
		want []string
	}{
		{
			"approval", func(s *shop) { s.approve("web") }, func(s *shop) { s.isAt("web", "ReleaseCompleted", 1) },
			[]string{"Approve step 0 of web", "web: v2", "web: v1"},
		},
		{
			"rollback", func(s *shop) { s.rollBack("web") }, func(s *shop) { s.rolledBack("web") },
			[]string{"Revert \"web: v2\"", "web: v2", "web: v1"},
		},
	} {
		t.Run(story.name, func(t *testing.T) {
			t.Parallel()
			for k, more := 1, true; more; k++ {
				t.Run(fmt.Sprintf("exchange %d", k), func(t *testing.T) {
					more = killedAt(t, &reaper{left: k, killed: make(chan struct{})}, story.tell, story.end, story.want) && !t.Failed()
				})
			}
		})
	}
}

// killedAt tells a story with a controller that dies. It returns false where
// the story was over before that.
func killedAt(t *testing.T, r *reaper, tell, end func(*shop), want []string) bool {
	s := newShopWithout(t)
	server := gittest.Serve(t, filepath.Dir(s.repo.Bare), gittest.ServeOptions{Wrap: r.wrap})
	stop := s.startController(andRollout)
	over := make(chan struct{})
	replaced := make(chan func())
	go func() {
		select {
		case <-r.killed:
			stop()
			r.set(func() { r.dead = false })
			replaced <- s.startController(andRollout)
		case <-over:
			replaced <- stop
		}
	}()
	t.Cleanup(func() {
		close(over)
		(<-replaced)()
	})
	s.beginRelease(writesBack, func(gs *v1alpha1.GitSource) {
		gs.Spec.URL = server.URL + "/" + filepath.Base(s.repo.Bare)
	})
	r.set(func() { r.armed = true })
	tell(s)
	s.has(want...)
	reached := false
	r.set(func() { reached = r.left <= 0 })
	end(s)
	s.ends(want...)
	return reached
}
