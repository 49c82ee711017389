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

// forgetful is a Git server that takes pushes, and keeps nothing of them for a while.
type forgetful struct {
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
		w.Header().Set("Content-Type", "application/x-git-receive-pack-result")
		report := line("unpack ok\n") + line("ok refs/heads/main\n") + "0000"
		_, _ = fmt.Fprint(w, line("\x01"+report)+"0000")
	})
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
	s, f := newIdleEnv(t), &forgetful{keeps: true}
	server := gittest.Serve(t, filepath.Dir(s.repo.Bare), gittest.ServeOptions{Wrap: f.wrap})
	t.Cleanup(s.startController(andRollout))
	s.applied2(s.repo.CommitAndPush(map[string]string{"deploy/web.yaml": web("v1"), "deploy/plan.yaml": webPlan}, "web: v1"),
		writesBack, func(gs *v1alpha1.GitSource) { gs.Spec.URL = server.URL + "/" + filepath.Base(s.repo.Bare) })
	s.isAt("web", "ReleaseCompleted", 1)
	s.repo.CommitAndPush(map[string]string{"deploy/web.yaml": web("v2")}, "web: v2")
	s.lookNow()
	s.isAt("web", "WaitingForApproval", 0)
	f.mu.Lock()
	f.keeps = false
	f.mu.Unlock()
	s.kubectl("annotate", "batchrelease/web", v1alpha1.AnnotationRollback+"=true")
	clustertest.Wait(t, "three pushes", func() error {
		if n := len(f.came()); n < 3 {
			return withSource(s, fmt.Errorf("%d pushes", n))
		}
		return nil
	})
	for i, at := range f.came()[1:3] {
		if waited, least := at.Sub(f.came()[i]), time.Second<<i; waited < least {
			t.Errorf("push %d came %s after the one before, want %s at least", i+2, waited, least)
		}
	}
	clustertest.Wait(t, "InSync to say so", func() error {
		if c := s.inSync(); c.Status != "False" || !strings.Contains(c.Message, ", and shows the branch as before") {
			return fmt.Errorf("InSync is %s: %s", c.Status, c.Message)
		}
		return nil
	})
	f.mu.Lock()
	f.keeps = true
	f.mu.Unlock()
	clustertest.Wait(t, "the revert", func() error {
		if file := s.inBare("show", "main:deploy/web.yaml"); !strings.Contains(file, "web:v1") {
			return withSource(s, fmt.Errorf("the branch has %s", file))
		}
		return nil
	})
	clustertest.Wait(t, "InSync", func() error {
		if c := s.inSync(); c.Status != "True" {
			return fmt.Errorf("%s", c.Message)
		}
		return nil
	})
	if n := s.inBare("rev-list", "--count", "--grep=This reverts commit", "main"); n != "1" {
		t.Errorf("the branch has %s reverts", n)
	}
}
