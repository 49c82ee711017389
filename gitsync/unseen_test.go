package gitsync_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// forgetful is a Git server that takes pushes, and for a while shows the branch without them.
type forgetful struct {
	git func(args ...string) string // in the repository
	// replaces: it has another commit with the old content in the place of the pushed one.
	replaces bool

	mu     sync.Mutex
	keeps  bool
	pushes []time.Time
}

func (f *forgetful) wrap(h http.Handler) http.Handler {
	line := func(text string) string { return fmt.Sprintf("%04x%s", 4+len(text), text) }
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.keeps || r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/git-receive-pack") {
			h.ServeHTTP(w, r)
			return
		}
		f.pushes = append(f.pushes, time.Now())
		report := line("unpack ok\n") + line("ok refs/heads/main\n") + "0000"
		if f.replaces {
			f.git("update-ref", "refs/heads/main", f.git("commit-tree", "-m", "Squashed", "-p", "main", "main^{tree}"))
		}
		w.Header().Set("Content-Type", "application/x-git-receive-pack-result")
		_, _ = fmt.Fprint(w, line("\x01"+report)+"0000")
	})
}

// keep begins or ends the time in which the server shows what it takes.
func (f *forgetful) keep(yes bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keeps = yes
}

// came returns when pushes came.
func (f *forgetful) came() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pushes[:len(f.pushes):len(f.pushes)]
}

// A server takes a push and does not show it. The source says so, and pushes again, less and
// less often, until the branch has the revert.
func TestWriteBackThatIsNotShown(t *testing.T) {
	t.Parallel()
	for name, replaces := range map[string]bool{"lost": false, "replaced": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newIdleEnv(t)
			pushesAgain(s, &forgetful{git: s.inBare, replaces: replaces, keeps: true})
		})
	}
}

func pushesAgain(s *env, f *forgetful) {
	s.Helper()
	server := gittest.Serve(s, filepath.Dir(s.repo.Bare), gittest.ServeOptions{Wrap: f.wrap})
	s.Cleanup(s.startController(andRollout))
	s.applied2(s.repo.CommitAndPush(map[string]string{"deploy/web.yaml": web("v1"), "deploy/plan.yaml": webPlan}, "web: v1"),
		writesBack, func(gs *v1alpha1.GitSource) { gs.Spec.URL = server.URL + "/" + filepath.Base(s.repo.Bare) })
	s.isAt("web", "ReleaseCompleted", 1)
	s.repo.CommitAndPush(map[string]string{"deploy/web.yaml": web("v2")}, "web: v2")
	s.lookNow()
	s.isAt("web", "WaitingForApproval", 0)
	f.keep(false)
	s.kubectl("annotate", "batchrelease/web", v1alpha1.AnnotationRollback+"=true")
	clustertest.Wait(s, "three pushes", func() error {
		if n := len(f.came()); n < 3 {
			return withSource(s, fmt.Errorf("%d pushes", n))
		}
		return nil
	})
	for i, at := range f.came()[1:3] {
		if waited, least := at.Sub(f.came()[i]), time.Second<<i; waited < least {
			s.Errorf("push %d came %s after the one before, want %s at least", i+2, waited, least)
		}
	}
	clustertest.Wait(s, "InSync to say so", func() error {
		if c := s.inSync(); c.Status != "False" || !strings.Contains(c.Message, ", and shows the branch without it") {
			return fmt.Errorf("InSync is %s: %s", c.Status, c.Message)
		}
		return nil
	})
	f.keep(true)
	clustertest.Wait(s, "the revert", func() error {
		if file := s.inBare("show", "main:deploy/web.yaml"); !strings.Contains(file, "web:v1") {
			return withSource(s, fmt.Errorf("the branch has %s", file))
		}
		return nil
	})
	clustertest.Wait(s, "InSync", func() error {
		if c := s.inSync(); c.Status != "True" {
			return fmt.Errorf("%s", c.Message)
		}
		return nil
	})
	if n := s.inBare("rev-list", "--count", "--grep=This reverts commit", "main"); n != "1" && !f.replaces {
		s.Errorf("the branch has %s reverts", n)
	}
}
